"""What an exhibit is, and what its checks say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Version = Callable[..., Any]
Check = Callable[[Version], None]


@dataclass(frozen=True)
class Exhibit:
    """A mistake, its cure, and the check that tells them apart.

    Attributes:
        name: Its name in the registry.
        room: The part of the museum that it stands in.
        title: What it is, in a few words.
        symptom: What is seen of it.
        wrong: The wrong version.
        right: The right version, called in the same way.
        check: Raises an error if it is given a wrong version.
        caught: What the error says of the wrong one, in part.
        careless: A usual check, which the wrong version passes; None where
            it passes none.
    """

    name: str
    room: str
    title: str
    symptom: str
    wrong: Version
    right: Version
    check: Check
    caught: str
    careless: Check | None = None


def claim(holds: bool, fact: str) -> None:
    """Raise AssertionError with ``fact`` unless the claim holds."""
    if not holds:
        raise AssertionError(fact)


def verdict(check: Check, version: Version) -> str:
    """Return what a check says of a version: "passes", or its error.

    Example:
        >>> from dpkit.lab.museum import EXHIBITS
        >>> from dpkit.lab.museum.exhibit import verdict
        >>> bug = EXHIBITS["loop that is empty"]
        >>> verdict(bug.check, bug.wrong)
        'ValueError: 0B0 is missing'
        >>> verdict(bug.check, bug.right)
        'passes'
    """
    try:
        check(version)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passes"
