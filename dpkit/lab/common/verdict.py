"""What a check says: solved, or not yet and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answer = Callable[..., Any]


class NotYet(Exception):  # noqa: N818
    """Says why an answer does not solve its exercise."""


def require(condition: bool, why: str) -> None:
    """Raise NotYet with ``why`` unless the condition holds."""
    if not condition:
        raise NotYet(why)
