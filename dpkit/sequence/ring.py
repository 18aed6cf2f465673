"""Ring attention: queries stay, keys and values go round.

In each of k steps a rank computes with the block that it has, while it sends
this block on and receives the next::

             rank 0                 rank 1                 rank 2
    step 0   q0 meets kv0           q1 meets kv1           q2 meets kv2
    step 1   q0 meets kv2           q1 meets kv0           q2 meets kv1
    step 2   q0 meets kv1           q1 meets kv2           q2 meets kv0

In backward the blocks go round once more. Each has its gradients with it, to
which every rank adds what its queries contribute, and which take one step more
to come home::

             rank 0                 rank 1                 rank 2
    step 0   dkv0 = from q0         dkv1 = from q1         dkv2 = from q2
    step 1   dkv2 + from q0         dkv0 + from q1         dkv1 + from q2
    step 2   dkv1 + from q0         dkv2 + from q1         dkv0 + from q2
    home     dkv0                   dkv1                   dkv2

So a rank sends its keys and values k − 1 times forward and k − 1 times
backward, and gradients of them k times, in float32 where they have 16 bits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dpkit.arguments import check_group, check_kind, check_tensor
from dpkit.sequence.block_attention import (
    BY_PRODUCTS,
    BlockKernel,
    SeenQueries,
    wide,
)
from dpkit.sequence.cut import pieces
from dpkit.sequence.messages import PassedOn
from dpkit.sequence.running_softmax import PartialAttention, merge_attention
from dpkit.units import check_flag


class Ring(NamedTuple):
    """What the ranks of a ring have agreed on."""

    causal: bool
    balanced: bool
    kernel: BlockKernel
    group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """The number of ranks."""
        return dist.get_world_size(self.group)

    def pieces_after(self, step: int) -> list[int]:
        """Return the pieces of the keys that this rank has after a step."""
        source = (dist.get_rank(self.group) - step) % self.size
        return pieces(source, self.size, self.balanced)

    def meetings(self, step: int) -> Iterator[tuple[int, int, bool]]:
        """Yield which pieces of a rank meet which of those that it has.

        Each is a place among the rank's own pieces, a place among those of
        the keys, and whether a mask divides them. Pieces of which no query
        sees a key are left out.
        """
        for i, of_query in enumerate(self.pieces_after(0)):
            for j, of_key in enumerate(self.pieces_after(step)):
                if of_key <= of_query or not self.causal:
                    yield i, j, self.causal and of_key == of_query

    def cut(self, x: Tensor) -> list[Tensor]:
        """Return views of the pieces of (…, positions, size), in order."""
        return list(x.chunk(2 if self.balanced else 1, dim=-2))


class RingAttention(Function):
    """Ring attention, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, ring: Ring
    ) -> Tensor:
        """Return the attention of this rank's queries to all keys."""
        queries = ring.cut(query)
        met: dict[int, PartialAttention] = {}  # by place of the query's piece
        kv = torch.stack([key, value])
        for step in range(ring.size):
            last = step == ring.size - 1
            passed = None if last else PassedOn(kv, ring.group)
            keys, values = map(ring.cut, kv)
            for i, j, masked in ring.meetings(step):
                block = ring.kernel.forward(
                    queries[i], keys[j], values[j], masked
                )
                met[i] = merge_attention(met[i], block) if i in met else block
            if passed is not None:
                kv = passed.wait()
        output = torch.cat([met[i].output for i in sorted(met)], -2)
        output = output.to(query.dtype)
        logsumexp = torch.cat([met[i].logsumexp for i in sorted(met)], -2)
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.ring = ring
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of this rank's queries, keys and values."""
        query, key, value, output, logsumexp = ctx.saved_tensors
        ring: Ring = ctx.ring
        cut = map(ring.cut, (query, output, gradient, logsumexp))
        seen = [SeenQueries(*parts) for parts in zip(*cut)]
        d_query = torch.zeros_like(wide(query))
        d_queries = ring.cut(d_query)
        kv = torch.stack([key, value])
        d_passed = None
        for step in range(ring.size):
            last = step == ring.size - 1
            passed = None if last else PassedOn(kv, ring.group)
            keys, values = map(ring.cut, kv)
            d_kv = torch.zeros_like(wide(kv))
            d_keys, d_values = map(ring.cut, d_kv)
            for i, j, masked in ring.meetings(step):
                dq, dk, dv = ring.kernel.backward(
                    seen[i], keys[j], values[j], masked
                )
                d_queries[i] += dq
                d_keys[j] += dk
                d_values[j] += dv
            if d_passed is not None:
                d_kv += d_passed.wait()
            d_passed = PassedOn(d_kv, ring.group)
            if passed is not None:
                kv = passed.wait()
        assert d_passed is not None
        d_key, d_value = d_passed.wait().to(key.dtype)
        return d_query.to(query.dtype), d_key, d_value, None


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    balanced: bool = False,
    kernel: BlockKernel = BY_PRODUCTS,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Return the attention of this rank's queries to the keys of all ranks.

    Every rank of the group calls it with its part of each sequence, as
    :func:`dpkit.sequence.own_part` cuts them, and calls backward.

    Args:
        query: Of shape (b, heads, length / k, size) on k ranks.
        key: Of the same shape.
        value: Of the same shape.
        causal: Whether a position sees none that come later.
        balanced: Whether the parts were cut so.
        kernel: How a block meets a block: ``BY_PRODUCTS`` or ``FUSED``.
        group: The ranks. None: all ranks.

    Returns:
        A tensor of the shape of ``query``.

    Raises:
        ValueError: the shapes differ or have other dimensions; or the part
            has an odd length, where it has to have a head and a tail.

    Example:
        >>> import torch.distributed as dist
        >>> from dpkit.sequence import own_part, ring_attention
        >>> def first_output():
        ...     torch.manual_seed(0)
        ...     x = torch.randn(1, 2, 12, 4)  # the whole, on each rank
        ...     rank = dist.get_rank()
        ...     part = own_part(x, 2, rank=rank, world_size=3).to("sim")
        ...     return ring_attention(part, part, part).shape
        >>> dpkit.sim.launch(first_output, 3)[0]
        torch.Size([1, 2, 4, 4])
    """
    check_shapes(query, key, value)
    check_flag("causal", causal)
    check_flag("balanced", balanced)
    check_kind("kernel", kernel, BlockKernel)
    check_group(group)
    if balanced and query.shape[2] % 2:
        raise ValueError(
            "a part with a head and a tail has an even length (length: "
            f"{query.shape[2]})"
        )
    ring = Ring(causal=causal, balanced=balanced, kernel=kernel, group=group)
    output: Tensor = RingAttention.apply(query, key, value, ring)
    return output


def check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise an error unless all have one dtype and one shape, of four."""
    for x in (query, key, value):
        check_tensor(x)
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 4:
        raise ValueError(
            "queries, keys and values need one shape, (b, heads, positions, "
            f"size) (shapes: {', '.join(map(str, shapes))})"
        )
    dtypes = [x.dtype for x in (query, key, value)]
    if len(set(dtypes)) > 1 or not query.is_floating_point():
        raise ValueError(
            "queries, keys and values need one floating-point dtype (dtypes: "
            f"{', '.join(map(str, dtypes))})"
        )
