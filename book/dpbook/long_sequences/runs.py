"""Attention of one long sequence on simulated devices, on the clock alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from dpkit import sim
from dpkit.machine import synchronize
from dpkit.ranks import launch
from dpkit.sequence import (
    FUSED,
    BlockKernel,
    ring_attention,
    ulysses_attention,
)
from dpkit.theory.clock.record import Span
from dpkit.theory.timeline.timeline import Timeline

HEADS, HEAD_SIZE = 32, 128
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention_of(
    way: str, causal: bool, kernel: BlockKernel = FUSED
) -> Attention:
    """Return a function of the queries, keys and values of a rank.

    Args:
        way: "one device", "ring", "balanced ring" or "ulysses".
        causal: Whether a position sees none that come later.
        kernel: How a block meets a block in a ring.
    """
    if way == "one device":
        return partial(F.scaled_dot_product_attention, is_causal=causal)
    if way == "ulysses":
        return partial(ulysses_attention, causal=causal)
    return partial(
        ring_attention,
        causal=causal,
        balanced=way == "balanced ring",
        kernel=kernel,
    )


@dataclass(frozen=True)
class Run:
    """Attention of one sequence, forward and backward."""

    forward: list[float]  # seconds, by rank
    backward: list[float]  # seconds, by rank
    peak_bytes: int  # on the rank that has most
    starts: tuple[float, float]  # of forward and backward, in the timeline
    timeline: Timeline

    def kernels(self, rank: int) -> float:
        """Return the seconds of forward in kernels of attention."""
        return self._computing(rank, attention=True)

    def others(self, rank: int) -> float:
        """Return the seconds of forward in other kernels: merging, copies."""
        return self._computing(rank, attention=False)

    def waiting(self, rank: int) -> float:
        """Return the seconds of forward in which a rank computes nothing."""
        return self.forward[rank] - self.kernels(rank) - self.others(rank)

    def sent(self, rank: int, forward: bool) -> int:
        """Return the bytes that a rank sends in one of the two passes."""
        return sum(
            span.num_bytes
            for span in self.timeline.spans
            if span.device == f"sim:{rank}"
            and span.name.startswith("copy to")
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

    def _computing(self, rank: int, attention: bool) -> float:
        return sum(
            span.end - span.start
            for span in self.forward_spans()
            if span.device == f"sim:{rank}"
            and span.stream == "compute"
            and ("attention" in span.name) == attention
        )


def attention_run(
    way: str,
    length: int,
    k: int,
    *,
    causal: bool = True,
    kernel: BlockKernel = FUSED,
    **machine: Any,
) -> Run:
    """Run attention of one sequence, forward and backward, in bfloat16.

    It has 32 heads, of 128 numbers for each position.

    Args:
        way: As for :func:`attention_of`.
        length: The positions of the whole sequence.
        k: How many devices have a part of it.
        causal: Whether a position sees none that come later.
        kernel: How a block meets a block in a ring.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    part = 1, HEADS, length // k, HEAD_SIZE
    attention = attention_of(way, causal, kernel)
    return _timed(k, partial(_passes, attention, part), machine)


def library_run(length: int, k: int, method: str, **machine: Any) -> Run:
    """Run the same causal attention by PyTorch's context_parallel.

    Args:
        length: The positions of the whole sequence.
        k: How many devices have a part of it.
        method: How keys and values go round: "allgather" or "alltoall".
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    whole = 1, HEADS, length, HEAD_SIZE
    return _timed(k, partial(_library_passes, method, whole), machine)


def _timed(k: int, program: Callable[[], Any], machine: dict[str, Any]) -> Run:
    settings = {"accelerator": "a100", "link": "nvlink3", **machine}
    with (
        sim.machine(
            backing="meta",
            hosts="per_device",
            memory_bytes=2**50,
            **settings,
        ),
        sim.trace() as timeline,
    ):
        found = launch(program, k)
    return Run(
        forward=[f for f, *_ in found],
        backward=[b for _, b, *_ in found],
        peak_bytes=max(peak for *_, peak, _ in found),
        starts=found[0][-1],
        timeline=timeline,
    )


Passes = tuple[float, float, int, tuple[float, float]]


def _passes(attention: Attention, part: tuple[int, ...]) -> Passes:
    """Run both passes on the part of a rank."""
    return _both(attention, _zeros(part))


def _library_passes(method: str, whole: tuple[int, ...]) -> Passes:
    """Run both passes on a rank by PyTorch, which cuts the whole."""
    # Here, not above: they take a second.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import (
        set_rotate_method,
    )

    set_rotate_method(method)
    numbers = _zeros(whole)
    with context_parallel(
        init_device_mesh("sim", (dist.get_world_size(),)),
        buffers=numbers,
        buffer_seq_dims=[2] * 4,
        no_restore_buffers=set(numbers),
    ):
        # In the block attention is another function.
        return _both(attention_of("one device", causal=True), numbers)


def _zeros(shape: tuple[int, ...]) -> list[Tensor]:
    """Return queries, keys, values and a gradient, on the rank's device."""
    device = torch.device("sim", dist.get_rank())
    return [
        torch.zeros(shape, dtype=torch.bfloat16, device=device)
        for _ in range(4)
    ]


def _both(attention: Attention, numbers: list[Tensor]) -> Passes:
    """Run both passes; each begins at the same time on all ranks."""
    q, k, v = (x.requires_grad_() for x in numbers[:3])
    device = q.device
    memory = torch.get_device_module(device)
    memory.reset_peak_memory_stats(device)
    first = _start(device)
    output = attention(q, k, v)
    synchronize([device])
    forward = sim.now() - first
    second = _start(device)
    torch.autograd.backward(output, numbers[3])
    synchronize([device])
    backward = sim.now() - second
    peak = memory.max_memory_allocated(device)
    return forward, backward, peak, (first, second)


def _start(device: torch.device) -> float:
    """Wait for all ranks; return the time, in seconds."""
    synchronize([device])
    dist.barrier()
    synchronize([device])
    return sim.now()
