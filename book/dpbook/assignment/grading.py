"""Whether an answer solves an exercise of an assignment.

The check is that of the book. A sheet, which has a number, its seed, may ask
for other numbers than the book does.
"""

from typing import Any

from dpbook.assignment.sheets import check_of
from dpbook.common.checks import all_checks
from dpbook.exercises.verdict import why_not
from dpkit.units import check_known


def refusal(name: str, answer: Any, seed: int | None = None) -> str | None:
    """Return why an answer does not solve an exercise; None if it does.

    Args:
        name: The name of the exercise, such as "cut_buckets".
        answer: What the notebook has under this name.
        seed: The number of the sheet; None: the numbers are the book's.

    Raises:
        ValueError: If no exercise has this name.

    Example:
        >>> refusal("cut_buckets", lambda: [1, 1, 2, 2, 3, 1])
        >>> refusal("cut_buckets", lambda: [5, 5])
        '[5, 5]: the last one ends at 13.2 ms, where 11.2 are allowed'
        >>> refusal("cut_buckets", 6)
        'cut_buckets is no function'
    """
    check_known("exercise", name, all_checks())
    if not callable(answer):
        return f"{name} is no function"
    return why_not(check_of(name, seed), answer)
