"""What a check says: solved, or not yet and why.

A check goes through cases. It knows what to expect in each, and requires it
from the answer; ``case`` are the words that name the inputs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dpkit.lab.common.traffic import Traffic

Answer = Callable[..., Any]


class NotYet(Exception):  # noqa: N818
    """An answer does not solve its exercise; the message is the reason."""


def require(condition: bool, why: str) -> None:
    """Raise NotYet with ``why`` unless the condition holds."""
    if not condition:
        raise NotYet(why)


def require_equal(found: object, expected: object, case: str) -> None:
    """Raise NotYet unless what was found is what was expected."""
    words = f"{case}: it returned {found!r}, expected {expected}"
    require(found == expected, words)


def require_number(
    found: Any, expected: float, case: str, form: str = "g", near: float = 1e-6
) -> None:
    """Raise NotYet unless a number is as expected, up to a share of it."""
    allowed = max(near * abs(expected), 1e-12)
    require(
        isinstance(found, (int, float)) and abs(found - expected) <= allowed,
        f"{case}: it returned {found!r}, expected {expected:{form}}",
    )


def require_ports(
    traffic: Traffic, ranks: Sequence[torch.device], limit: int, case: str
) -> None:
    """Raise NotYet if a port carries more bytes one way, or the CPU any."""
    cpu = torch.device("cpu")
    require(
        not traffic.sent[cpu] + traffic.received[cpu],
        f"{case}: it goes through the CPU, where devices can send directly",
    )
    for rank, device in enumerate(ranks):
        busiest = max(traffic.sent[device], traffic.received[device])
        require(
            busiest <= limit,
            f"{case}: rank {rank} carries {busiest} bytes one way, where "
            f"{limit} do",
        )


def require_sent(num_bytes: int, limit: int, case: str) -> None:
    """Raise NotYet if more bytes were sent than need be."""
    words = f"{case}: it sends {num_bytes} bytes, where {limit} do"
    require(num_bytes <= limit, words)
