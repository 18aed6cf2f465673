"""What an exhibit is, and what its checks say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Version = Callable[..., Any]
Check = Callable[[Version], None]
Devices = Sequence[torch.device]


@dataclass(frozen=True)
class Exhibit:
    """A mistake, its cure, and the check that tells them apart.

    Attributes:
        name: Its name in the registry.
        wrong: The wrong version.
        right: The right version, called in the same way.
        check: Raises an error if it is given a wrong version.
        careless: A usual check, which the wrong version passes; None where
            it passes none.
    """

    name: str
    wrong: Version
    right: Version
    check: Check
    careless: Check | None = None


def claim(holds: bool, fact: str) -> None:
    """Raise AssertionError with ``fact`` unless the claim holds."""
    if not holds:
        raise AssertionError(fact)


def verdict(check: Check, version: Version) -> str:
    """Return what a check says of a version: "passes", or its error."""
    try:
        check(version)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passes"
