"""What a check requires of messages between devices."""

from collections.abc import Sequence

import torch

from dpbook.exercises.verdict import require
from dpkit.traffic import Traffic


def require_ports(
    traffic: Traffic, ranks: Sequence[torch.device], limit: int, case: str
) -> None:
    """Raise NotYet if a device sends or receives more than it must.

    Raise it as well if anything goes through the CPU.

    Args:
        traffic: What the answer has sent.
        ranks: The devices whose ports are looked at.
        limit: The most bytes that a device may send, and the most that it may
            receive.
        case: Words that name the inputs, for the message.
    """
    cpu = torch.device("cpu")
    why = f"{case}: it goes through the CPU, where devices can send directly"
    require(not traffic.sent[cpu] + traffic.received[cpu], why)
    for rank, device in enumerate(ranks):
        busiest = max(traffic.sent[device], traffic.received[device])
        why = f"carries {busiest} bytes one way, where {limit} do"
        require(busiest <= limit, f"{case}: rank {rank} {why}")


def require_sent(num_bytes: int, limit: int, case: str) -> None:
    """Raise NotYet if more bytes were sent than need be.

    Args:
        num_bytes: What the answer has sent.
        limit: The most bytes that it may send.
        case: Words that name the inputs, for the message.
    """
    why = f"{case}: it sends {num_bytes} bytes, where {limit} do"
    require(num_bytes <= limit, why)
