"""What a sheet asks of an exercise whose answer is a decision.

The numbers of the text are drawn, and the key is computed from them. So the
answer that the book publishes is no answer to the sheet, but by chance.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from dpbook.exercises.verdict import Answer, why_not


class Asked(NamedTuple):
    """An exercise with the numbers of a sheet.

    ``phrases`` maps words of the text in the book to those of the sheet, and
    ``keys`` are all right answers, found by trying what may be answered.
    """

    phrases: Mapping[str, str]
    check: Callable[[Answer], None]
    keys: list[object]


Draw = Callable[[Random], Asked]


def listed(items: list[str]) -> str:
    """Join some words as a sentence does.

    Example:
        >>> listed(["1", "2", "3"])
        '1, 2 and 3'
    """
    return f"{', '.join(items[:-1])} and {items[-1]}"


def passes(check: Callable[[Answer], None], answer: object) -> bool:
    """Return whether a check accepts a function that returns an answer."""
    return why_not(check, lambda: answer) is None
