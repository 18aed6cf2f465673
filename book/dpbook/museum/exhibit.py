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
    """A mistake, its cure, and the check that tells them apart."""

    name: str
    wrong: Version
    right: Version  # called in the same way
    check: Check  # raises an error if it is given a wrong version
    careless: Check | None = None  # a usual check, which both versions pass


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
