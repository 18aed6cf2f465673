"""Attention of one long sequence on simulated devices, on the clock alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from dpbook.common.passes import OfRank, Passes, both_passes, timed_passes
from dpkit.sequence import (
    FUSED,
    BlockKernel,
    ring_attention,
    ulysses_attention,
)
from dpkit.sim.hardware import (
    ACCELERATORS,
    achieved_flops_per_second,
    attention_kernel,
)

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


def attention_rate(accelerator: str) -> tuple[str, float]:
    """Return the fastest kernel of attention in bfloat16, and its flops/s."""
    card = ACCELERATORS[accelerator]
    kernel = attention_kernel(card, "bfloat16")
    return kernel, achieved_flops_per_second(card, "bfloat16", kernel)


class Run(Passes):
    """Attention of one sequence, forward and backward."""

    def kernels(self, rank: int) -> float:
        """Return the seconds of forward in kernels of attention."""
        return self._computing(rank, attention=True)

    def others(self, rank: int) -> float:
        """Return the seconds of forward in other kernels: merging, copies."""
        return self._computing(rank, attention=False)

    def waiting(self, rank: int) -> float:
        """Return the seconds of forward in which a rank computes nothing."""
        return self.forward[rank] - self.kernels(rank) - self.others(rank)

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


def _timed(
    k: int, program: Callable[[], OfRank], machine: dict[str, Any]
) -> Run:
    settings = {"accelerator": "a100", "link": "nvlink3", **machine}
    return Run(**vars(timed_passes(k, program, **settings)))


def _passes(attention: Attention, part: tuple[int, ...]) -> OfRank:
    """Run both passes on the part of a rank."""
    return _both(attention, _zeros(part))


def _library_passes(method: str, whole: tuple[int, ...]) -> OfRank:
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


def _both(attention: Attention, numbers: list[Tensor]) -> OfRank:
    """Run both passes of attention; the last of the numbers is a gradient."""
    q, k, v = (x.requires_grad_() for x in numbers[:3])
    return both_passes(partial(attention, q, k, v), numbers[3])
