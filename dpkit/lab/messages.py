"""Count what a piece of work sends from device to device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpkit import sim


def sent(work: Callable[..., Any], *arguments: Any) -> tuple[int, int]:
    """Run some work; return the messages that devices sent, and their bytes.

    Every copy between two simulated devices counts, once. What comes from the
    CPU is not sent by a device.

    Args:
        work: A function, on simulated devices.
        arguments: What to call it with.

    Returns:
        The number of copies, and the sum of their bytes.

    Example:
        >>> import dpkit, torch
        >>> from dpkit.lab.messages import sent
        >>> tensors = [torch.ones(3, 5, device=d)
        ...            for d in dpkit.devices(4, kind="sim")]
        >>> sent(dpkit.allreduce, tensors)  # 6 messages of 3 · 5 · 4 bytes
        (6, 360)
    """
    with sim.trace() as timeline:
        work(*arguments)
    copies = [
        span
        for span in timeline.spans
        # A copy stands at both of its ends: count it at the sender's.
        if span.kind == "copy" and span.name.startswith("copy to sim:")
    ]
    return len(copies), sum(span.num_bytes for span in copies)
