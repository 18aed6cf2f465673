"""Forward and backward on simulated ranks, on the clock alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dpkit import sim, synchronize
from dpkit.runs import launch
from dpkit.sim.clock import Span
from dpkit.sim.timeline import Timeline

# Seconds forward and backward, peak bytes, and when both passes began.
OfRank = tuple[float, float, int, tuple[float, float]]


@dataclass(frozen=True)
class Passes:
    """Forward and backward on all ranks."""

    forward: list[float]  # seconds, by rank
    backward: list[float]  # seconds, by rank
    peak_bytes: int  # on the rank that has most
    starts: tuple[float, float]  # of forward and backward, in the timeline
    timeline: Timeline

    def sent(self, rank: int, forward: bool) -> int:
        """Return the bytes that a rank sends in one of the two passes."""
        return sum(
            span.num_bytes
            for span in self.timeline.spans
            if span.device == f"sim:{rank}"
            and span.name.startswith("copy to sim")
            and (span.start < self.starts[1]) == forward
        )

    def forward_spans(self) -> list[Span]:
        """Return what devices do in forward; times are from its start."""
        begin, end = self.starts
        return [
            replace(span, start=span.start - begin, end=span.end - begin)
            for span in self.timeline.spans
            if span.device.startswith("sim") and begin <= span.start < end
        ]


def timed_passes(
    k: int, program: Callable[[], OfRank], **machine: Any
) -> Passes:
    """Run a program on k ranks without values, and return its times.

    Args:
        k: The number of ranks. Each has a host.
        program: Returns what :func:`both_passes` gave.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    with (
        sim.machine(
            backing="meta",
            hosts="per_device",
            memory_bytes=2**50,
            **machine,
        ),
        sim.trace() as timeline,
    ):
        found = launch(program, k)
    return Passes(
        forward=[f for f, *_ in found],
        backward=[b for _, b, *_ in found],
        peak_bytes=max(peak for *_, peak, _ in found),
        starts=found[0][-1],
        timeline=timeline,
    )


def both_passes(forward: Callable[[], Tensor], gradient: Tensor) -> OfRank:
    """Run both passes; each begins at the same time on all ranks.

    Args:
        forward: Returns the output of this rank.
        gradient: That of the output, on the same device.
    """
    device = gradient.device
    memory = torch.get_device_module(device)
    memory.reset_peak_memory_stats(device)
    first = start_together(device)
    output = forward()
    synchronize([device])
    forward_seconds = sim.now() - first
    second = start_together(device)
    torch.autograd.backward(output, gradient)
    synchronize([device])
    backward_seconds = sim.now() - second
    peak = memory.max_memory_allocated(device)
    return forward_seconds, backward_seconds, peak, (first, second)


def start_together(device: torch.device) -> float:
    """Wait until all ranks are here; return the time, in seconds."""
    synchronize([device])
    dist.barrier()
    synchronize([device])
    return sim.now()
