"""The checks of the exercises.

An exercise in a chapter is a stub, the line ``check(stub)``, and a solution
that the page hides. The answer ``f`` is checked by a function ``check_f``, in
``book/dpbook/exercises`` or, if it needs torch, in a chapter's
``book/dpbook/<chapter>/check.py``. It runs the answer on inputs that catch the
usual mistakes, and prints the verdict::

    allreduce_by_parts: not yet (8 elements on 2 devices: rank 0 is wrong …)
    allreduce_by_parts: solved
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module, resources

from dpbook.exercises.listed import CHECKS
from dpbook.exercises.verdict import Answer, checks_in, why_not
from dpkit.units import check_known


@cache
def all_checks() -> dict[str, Callable[[Answer], None]]:
    """Return the check of each exercise, by the name of the answer."""
    found = dict(CHECKS)
    for chapter in sorted(resources.files("dpbook").iterdir(), key=str):
        if not (chapter / "check.py").is_file():
            continue
        found |= checks_in(import_module(f"dpbook.{chapter.name}.check"))
    return found


def check(answer: Answer) -> None:
    """Print whether an answer solves its exercise, and if not, why.

    The answer is a function with the name that the exercise gives it.

    Raises:
        ValueError: If no exercise has this name.

    Example:
        >>> def accuracy_on_all(net, X, y, device_params, devices):
        ...     return 0.5
        >>> check(accuracy_on_all)  # doctest: +NORMALIZE_WHITESPACE
        accuracy_on_all: not yet (the accuracy is 5/7; devices: 1, returned:
        0.5)
    """
    why = failure(answer)
    verdict = "solved" if why is None else f"not yet ({why})"
    print(f"{answer.__name__}: {verdict}")


def failure(answer: Answer) -> str | None:
    """Return why ``answer`` does not solve its exercise; None if it does."""
    if not hasattr(answer, "__name__"):
        raise TypeError(f"check takes the function itself (given: {answer!r})")
    checks = all_checks()
    check_known("exercise", answer.__name__, checks)
    return why_not(checks[answer.__name__], answer)
