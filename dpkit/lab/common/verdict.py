"""What a check says: solved, or not yet and why.

A check goes through cases. It knows what to expect in each, and requires it
from the answer; ``case`` are the words that name the inputs.
"""

from collections.abc import Callable, Iterable, Sequence
from math import isclose
from typing import Any, SupportsFloat

import torch

from dpkit.lab.common.traffic import Traffic

Answer = Callable[..., Any]


class NotYet(Exception):  # noqa: N818
    """An answer does not solve its exercise; the message is the reason."""


def require(condition: bool, why: str) -> None:
    """Raise NotYet with ``why`` unless the condition holds."""
    if not condition:
        raise NotYet(why)


def require_same(
    found: object,
    expected: object,
    case: str,
    form: str = "",
    near: float = 1e-6,
) -> None:
    """Raise NotYet unless what was found is what was expected.

    Floats may differ by a share of ``near``; ``form`` is how they are shown.
    """
    words = f"{case}: it returned {found!r}, expected {expected:{form}}"
    require(same(found, expected, near), words)


def require_reference(
    answer: Answer,
    reference: Answer,
    cases: Iterable[tuple[Any, ...]],
    words: str,
    form: str = "",
    near: float = 1e-6,
) -> None:
    """Raise NotYet unless an answer returns what a reference returns.

    A case is a tuple of arguments for both, and ``words`` a format of them
    that names it, such as ``"{0} devices, tree={1}"``.
    """
    for case in cases:
        found, expected = answer(*case), reference(*case)
        require_same(found, expected, words.format(*case), form, near)


def same(found: Any, expected: Any, near: float = 1e-6) -> bool:
    """Compare numbers, or sequences of them by their elements."""
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(found) == len(expected)
            and all(same(a, b, near) for a, b in zip(found, expected))
        )
    if isinstance(expected, float) and isinstance(found, SupportsFloat):
        return isclose(found, expected, rel_tol=near, abs_tol=1e-12)
    return bool(found == expected)


def require_ports(
    traffic: Traffic, ranks: Sequence[torch.device], limit: int, case: str
) -> None:
    """Raise NotYet if a port carries more bytes one way, or the CPU any."""
    cpu = torch.device("cpu")
    words = f"{case}: it goes through the CPU, where devices can send directly"
    require(not traffic.sent[cpu] + traffic.received[cpu], words)
    for rank, device in enumerate(ranks):
        busiest = max(traffic.sent[device], traffic.received[device])
        words = f"carries {busiest} bytes one way, where {limit} do"
        require(busiest <= limit, f"{case}: rank {rank} {words}")


def require_sent(num_bytes: int, limit: int, case: str) -> None:
    """Raise NotYet if more bytes were sent than need be."""
    words = f"{case}: it sends {num_bytes} bytes, where {limit} do"
    require(num_bytes <= limit, words)
