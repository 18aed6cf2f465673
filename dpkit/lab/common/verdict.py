"""What a check requires of messages between devices."""

from collections.abc import Sequence

import torch

from dpkit.lab.common.traffic import Traffic
from dpkit.theory.exercises.verdict import require


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
