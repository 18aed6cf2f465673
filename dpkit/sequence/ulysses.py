"""Ulysses: attention by two all-to-alls, of heads and of positions.

A head needs the queries, keys and values of itself alone. So the ranks
exchange parts: instead of some positions of all heads, each has all positions
of some heads. Four heads, a to d, and four positions, on two ranks::

    before         rank 0  a0 a1 b0 b1 c0 c1 d0 d1   rank 1  a2 a3 b2 b3 …
    all-to-all     rank 0  a0 a1 a2 a3 b0 b1 b2 b3   rank 1  c0 c1 c2 c3 …

The outputs go back in the same way, and so do all gradients.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dpkit.arguments import check_group
from dpkit.sequence.ring import check_shapes

HEADS, POSITIONS = -3, -2  # the dimensions of (…, heads, positions, size)


def exchange(
    x: Tensor, *, split: int, join: int, group: dist.ProcessGroup | None
) -> Tensor:
    """Give each rank a part of a tensor, and join what the others give.

    Args:
        x: A tensor of each rank, all of one shape; k divides ``split``.
        split: The dimension that is cut: rank r gets part r of each.
        join: The dimension along which the parts are joined, in order.
        group: The k ranks. None: all ranks.
    """
    world_size = dist.get_world_size(group)
    given = torch.stack(x.chunk(world_size, split))
    taken = torch.empty_like(given)
    dist.all_to_all_single(taken, given, group=group)
    return torch.cat(taken.unbind(), join)


class Exchange(Function):
    """An all-to-all, which another one undoes: also that of the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        split: int,
        join: int,
        group: dist.ProcessGroup | None,
    ) -> Tensor:
        """Return :func:`exchange` of the same arguments."""
        ctx.back = {"split": join, "join": split, "group": group}
        return exchange(x, split=split, join=join, group=group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Exchange the gradients in the other direction."""
        return exchange(gradient, **ctx.back), None, None, None


def ulysses_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Return the attention of this rank's queries to the keys of all ranks.

    Every rank of the group calls it with its part of each sequence, in order,
    and calls backward. Each computes heads / k of the heads by
    ``scaled_dot_product_attention``.

    Args:
        query: Of shape (b, heads, length / k, size) on k ranks.
        key: Of the same shape.
        value: Of the same shape.
        causal: Whether a position sees none that come later.
        group: The ranks. None: all ranks.

    Returns:
        A tensor of the shape of ``query``.

    Raises:
        ValueError: the ranks do not divide the heads; or the shapes differ.

    Example:
        >>> import torch.distributed as dist
        >>> from dpkit.sequence import own_part, ulysses_attention
        >>> def output():
        ...     torch.manual_seed(0)
        ...     x = torch.randn(1, 3, 6, 4)  # the whole, on each rank
        ...     rank = dist.get_rank()
        ...     part = own_part(x, 2, rank=rank, world_size=3).to("sim")
        ...     return ulysses_attention(part, part, part).shape
        >>> dpkit.sim.launch(output, 3)[0]
        torch.Size([1, 3, 2, 4])
    """
    check_shapes(query, key, value)
    check_group(group)
    world_size = dist.get_world_size(group)
    heads = query.shape[1]
    if heads % world_size:
        raise ValueError(
            "the ranks do not divide the heads (heads: "
            f"{heads}, ranks: {world_size}); a ring needs no heads"
        )
    together = torch.stack([query, key, value])
    q, k, v = Exchange.apply(together, HEADS, POSITIONS, group)
    output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    back: Tensor = Exchange.apply(output, POSITIONS, HEADS, group)
    return back
