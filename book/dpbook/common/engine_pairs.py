"""Our engines and PyTorch's own, compared: the same step, on the same devices.

Both are simulated, so that their timelines can be laid side by side. What
PyTorch's engine issues more, or less, is counted by name.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from dpbook.common.rounding import below
from dpkit import sim, synchronize
from dpkit.arguments import Devices
from dpkit.sim.clock import Span
from dpkit.sim.timeline import Timeline
from dpkit.tables import Table, table


class Step(NamedTuple):
    """A training step: what happened, and the gradients, on the CPU."""

    timeline: Timeline
    gradients: list[Tensor]


@dataclass(frozen=True)
class Pair:
    """A step by our engine, and the same one by PyTorch's.

    The gradients may be those of narrower layers: see :func:`pair_of`.
    """

    name: str
    ours: Step
    theirs: Step

    @property
    def slower(self) -> float:
        """How much longer PyTorch's takes, as a share of our seconds."""
        seconds = self.theirs.timeline.makespan
        return seconds / self.ours.timeline.makespan - 1

    @property
    def away(self) -> float:
        """The largest difference of a value in a gradient.

        It is a share of the largest value in that gradient.
        """
        pairs = zip(self.ours.gradients, self.theirs.gradients, strict=True)
        return max(
            float((a - b).abs().max() / a.abs().max()) for a, b in pairs
        )

    def counted(self, device: int = 0) -> Table:
        """Return what the two issue to a device, where that differs.

        A line has how often an operation is issued, and how many microseconds
        that adds to the host, which launches it, and to the device.
        """
        ours, theirs = (
            counts_of(step.timeline, device)
            for step in (self.ours, self.theirs)
        )
        rows = []
        for name in sorted({*ours, *theirs}):
            a, b = (x.get(name, Counted(0, 0, 0)) for x in (ours, theirs))
            if a.times != b.times:
                rows.append(
                    {
                        "operation": name,
                        "ours": a.times,
                        "PyTorch's": b.times,
                        "more µs, host": f"{1e6 * (b.host - a.host):+.0f}",
                        "device": f"{1e6 * (b.device - a.device):+.0f}",
                    }
                )
        return table(rows)


class Counted(NamedTuple):
    """How often a host issued an operation, and the seconds in it."""

    times: int
    host: float
    device: float


NARROW = 256  # the widest layers whose gradients pairs compare


def pair_of(
    name: str,
    both: Callable[[int], tuple[Step, Step]],
    width: int,
    machine: Mapping[str, Any],
) -> Pair:
    """Trace the same step by two engines, and compare their gradients.

    Times depend on no value, so that the steps of wide layers are traced
    without values. The gradients are those of narrower layers, which take a
    fraction of the arithmetic.

    Args:
        name: That of the pair.
        both: It takes a step of layers of this width by our engine, and one
            by PyTorch's.
        width: The values that go into each layer whose step is traced.
        machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    hardware = {"hosts": "per_device", **machine}
    with sim.machine(**hardware | {"backing": "meta"}):
        timed = both(width)
    with sim.machine(**hardware):
        compared = both(min(width, NARROW))
    ours, theirs = (
        Step(wide.timeline, narrow.gradients)
        for wide, narrow in zip(timed, compared)
    )
    return Pair(name, ours, theirs)


def counts_of(timeline: Timeline, device: int) -> dict[str, Counted]:
    """Count the operations that the host of a device has issued, by name.

    ``device`` is its number. The seconds are those of the host, which
    launches, and of the device, which executes.

    Example:
        >>> with dpkit.sim.machine(hosts="per_device"):
        ...     x = torch.ones(3, device=dpkit.devices(1, "sim")[0])
        ...     with dpkit.sim.trace() as timeline:
        ...         y = (x + x) * x + x
        ...     del x, y
        >>> found = counts_of(timeline, 0)
        >>> found["add"].times, round(1e6 * found["add"].host)
        (2, 16)
    """
    rows: dict[str, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        mine = span.device in (f"host:{device}", f"sim:{device}")
        if mine and span.kind != "wait":
            # All copies have one name, whatever their other end is.
            copies = span.name.startswith("copy ")
            rows["copy" if copies else span.name].append(span)
    return {
        name: Counted(
            sum(span.kind == "launch" for span in spans),
            sum(s.end - s.start for s in spans if s.kind == "launch"),
            sum(s.end - s.start for s in spans if s.kind != "launch"),
        )
        for name, spans in rows.items()
    }


def traced(step: Callable[[], Any], on: int = 0) -> Timeline:
    """Trace a step that all ranks take; return the timeline on one of them.

    The rank is ``on``; the others get an empty timeline. A barrier before and
    after keeps other work out of it. Each rank calls this.
    """
    device = torch.device("sim", dist.get_rank())
    synchronize([device])
    dist.barrier()
    with sim.trace() if device.index == on else nullcontext() as timeline:
        dist.barrier()
        step()
        synchronize([device])
        dist.barrier()
    dist.barrier()  # nobody goes on before the trace has ended
    return timeline or Timeline()


def traced_here(step: Callable[[], Any], devices: Devices) -> Timeline:
    """Trace a step that one program takes on all devices."""
    synchronize(devices)
    with sim.trace() as timeline:
        step()
        synchronize(devices)
    return timeline


def only(timeline: Timeline, *rows: str) -> Timeline:
    """Return a part of a timeline: the spans of some rows.

    A row is a device, "sim:1", or one of its streams, "sim:0 compute".

    Example:
        >>> zero, one = dpkit.devices(2, "sim")
        >>> with dpkit.sim.trace() as timeline:
        ...     x = torch.ones(3, device=zero).to(one)
        >>> {span.device for span in only(timeline, "sim:1").spans}
        {'sim:1'}
        >>> len(only(timeline, "sim:0 compute", "host").spans)
        4
    """
    spans = [
        span
        for span in timeline.spans
        if span.device in rows or f"{span.device} {span.stream}" in rows
    ]
    return Timeline(spans, label=timeline.label)


def on_cpu(params: Iterable[Tensor]) -> list[Tensor]:
    """Return copies of the gradients of parameters, on the CPU."""
    return [p.grad.cpu() for p in params if p.grad is not None]


def engines_table(pairs: Iterable[Pair]) -> Table:
    """Return a line for each pair: milliseconds, and what PyTorch's adds.

    The gradients are in float32, and differ by rounding.
    """
    return table(
        [
            {
                "step": pair.name,
                "ours, ms": f"{1e3 * pair.ours.timeline.makespan:.3f}",
                "PyTorch's": f"{1e3 * pair.theirs.timeline.makespan:.3f}",
                "takes more": f"{pair.slower:+.1%}",
                "gradients differ by": below(pair.away, torch.float32),
            }
            for pair in pairs
        ]
    )
