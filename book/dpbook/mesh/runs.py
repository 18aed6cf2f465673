"""A step of a layout on simulated nodes: seconds, bytes and memory."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from dpbook.common.passes import start_together
from dpbook.mesh.layouts import Layout
from dpbook.mesh.model import Sizes
from dpbook.mesh.training import Trainer
from dpkit import sim, synchronize
from dpkit.runs import launch
from dpkit.sim.clock import Span
from dpkit.sim.timeline import Timeline

#: Four blocks as wide as those of Llama 2 7B, with grouped queries.
LARGE = Sizes(
    vocabulary=32_000,
    width=4096,
    blocks=4,
    heads=32,
    key_heads=8,
    inner=11_008,
    length=2048,
)
NUM_ROWS = 16
#: Two nodes of four A100s.
NODES: dict[str, Any] = {
    "accelerator": "a100",
    "link": "nvlink3",
    "ranks_per_node": 4,
    "network": "infiniband200",
}
COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast")


@dataclass(frozen=True)
class Measured:
    """A step of training on a layout."""

    seconds: float  #: simulated, of the slowest rank
    peak_bytes: int  #: on the rank that has most
    #: The bytes that all ranks send, by dimension of the mesh and by kind:
    #: ("tp", "allgather"), ("pp", "message").
    sent: dict[tuple[str, str], int]
    timeline: Timeline  #: of the step, on devices; its blocks are all

    def computing(self, rank: int) -> float:
        """Return the seconds that the device of a rank computes."""
        return sum(
            span.end - span.start
            for span in self.timeline.spans
            if span.device == f"sim:{rank}" and span.stream == "compute"
        )


def measure(
    layout: Layout,
    sizes: Sizes = LARGE,
    num_rows: int = NUM_ROWS,
    **machine: Any,
) -> Measured:
    """Take a step without values, on simulated nodes.

    What a first step makes is there before the step. Each collective is one
    kernel, as NCCL's are.

    Args:
        layout: How the model is cut.
        sizes: Those of the model.
        num_rows: Sequences in the batch, over all ranks.
        **machine: What :func:`dpkit.sim.machine` changes of ``NODES``.

    Example:
        >>> from dpbook.mesh.runs import measure
        >>> from dpbook.mesh.programs import SMALL
        >>> found = measure(Layout(fsdp=2), SMALL, ranks_per_node=None)
        >>> sorted(kind for _, kind in found.sent)
        ['allgather', 'reduce_scatter']
    """
    settings = {
        **NODES,
        "num_devices": layout.num_ranks,
        "memory_bytes": 2**50,
        **machine,
    }
    with (
        sim.machine(backing="meta", hosts="per_device", **settings),
        sim.trace() as timeline,
    ):
        found = launch(
            step_without_values,
            layout.num_ranks,
            sizes,
            layout,
            num_rows,
            algorithm="library",
        )
    begin = max(begin for begin, _, _ in found)
    spans = [
        replace(span, start=span.start - begin, end=span.end - begin)
        for span in timeline.spans
        if span.device.startswith("sim") and span.start >= begin
    ]
    return Measured(
        seconds=max(end for _, end, _ in found) - begin,
        peak_bytes=max(peak for _, _, peak in found),
        sent=bytes_sent(spans, name_of_world(layout)),
        timeline=Timeline(
            spans=spans, blocks=timeline.blocks, label=timeline.label
        ),
    )


def alive_at_peak(timeline: Timeline, device: str) -> Counter[int]:
    """Return how many tensors of each size are alive at the peak of memory.

    Args:
        timeline: Of a step.
        device: Such as "sim:0".

    Returns:
        The number of tensors, by their bytes.
    """
    events: list[tuple[int, int]] = []
    for block in timeline.blocks:
        if block.device != device:
            continue
        events.append((block.allocated, block.num_bytes))
        if block.freed is not None:
            events.append((block.freed, -block.num_bytes))
    alive: Counter[int] = Counter()
    fullest, total, most = Counter[int](), 0, 0
    for _, num_bytes in sorted(events):
        alive[abs(num_bytes)] += 1 if num_bytes > 0 else -1
        total += num_bytes
        if total > most:
            fullest, most = alive.copy(), total
    return fullest


def step_without_values(
    sizes: Sizes, layout: Layout, num_rows: int
) -> tuple[float, float, int]:
    """Return when a step begins and ends on a rank, and its peak of bytes."""
    trainer = Trainer(sizes, layout, whole=None, dtype=torch.float32)
    tokens = torch.zeros(num_rows, sizes.length, dtype=torch.long)
    make_state(trainer, tokens)
    device = trainer.device
    memory = torch.get_device_module(device)
    begin = start_together(device)
    memory.reset_peak_memory_stats(device)
    trainer.step(tokens, tokens)
    synchronize([device])
    end = sim.now()
    dist.barrier()
    peak: int = memory.max_memory_allocated(device)
    return begin, end, peak


def make_state(trainer: Trainer, tokens: torch.Tensor) -> None:
    """Make what a first step makes: Adam's state, and what engines learn.

    DDP has one bucket until it has seen a backward. A stage runs forward once
    more in its first step, to find out which shapes it sends.
    """
    if trainer.layout.ddp > 1 or trainer.layout.pp > 1:
        trainer.step(tokens, tokens)
        return
    for p in trainer.model.parameters():
        p.grad = torch.zeros_like(p)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def name_of_world(layout: Layout) -> str:
    """Return the dimension whose group is that of all ranks, or "world"."""
    whole = layout.num_ranks
    if layout.fsdp * layout.cp == whole and layout.cp > 1:
        return "shards"
    names = [n for n in layout.names if layout.size(n) == whole]
    return names[0] if names else "world"


def bytes_sent(spans: list[Span], world: str) -> dict[tuple[str, str], int]:
    """Return what devices send, by dimension of the mesh and kind.

    A message has a span where it comes from, and another where it goes to. The
    first one counts. Its stream is named "pp 0 → 1" or "cp, sends".

    Args:
        spans: What devices do; a stream has the name of a dimension.
        world: The dimension whose stream is named "world".
    """
    sent: Counter[tuple[str, str]] = Counter()
    for span in spans:
        name = span.stream.split()[0].strip(",")
        name = world if name == "world" else name
        if span.name.startswith("copy to sim:"):
            sent[name, "message"] += span.num_bytes
        elif span.name in COLLECTIVES:
            sent[name, span.name] += span.num_bytes
    return dict(sent)
