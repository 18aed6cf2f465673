"""Rows from rank to rank, as many as each has for the other.

Ranks 0 and 1 have five rows and two. The first column says for whom they are::

    rank 0   0: a b    1: c d e          rank 1   0: f    1: g
    after    rank 0: a b f               rank 1: c d e g
    counts   rank 0 gives [2, 3], takes [2, 1]

Nobody knows beforehand how many rows will come. So the ranks exchange these
counts first, and the host reads them, because it makes the tensor for the
rows. It waits until the device has counted.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Counts = list[int]


def exchange_rows(
    x: Tensor,
    given: Counts,
    taken: Counts,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Give each rank some rows, and return those that the ranks give.

    The gradients of the rows go back the same way.

    Args:
        x: Rows, those for rank 0 first, of shape (sum of ``given``, w).
        given: How many rows each rank of the group gets from this one.
        taken: How many rows this rank gets from each.
        group: The ranks. None: all ranks.

    Example:
        Ranks 0 and 1 have five rows and two:

        >>> import torch.distributed as dist
        >>> held = [torch.arange(5.0), torch.arange(5.0, 7.0)]
        >>> given = [[2, 3], [1, 1]]
        >>> def arriving():
        ...     rank = dist.get_rank()
        ...     x = held[rank].to("sim")[:, None]
        ...     taken = [counts[rank] for counts in given]
        ...     return exchange_rows(x, given[rank], taken).flatten().tolist()
        >>> dpkit.sim.launch(arriving, 2)
        [[0.0, 1.0, 5.0], [2.0, 3.0, 4.0, 6.0]]
    """
    rows: Tensor = _Exchange.apply(x, given, taken, group)
    return rows


def exchange_counts(
    counts: Tensor, group: dist.ProcessGroup | None = None
) -> Tensor:
    """Give each rank its part of some counts, and return what they give.

    Args:
        counts: Whole numbers; k ranks divide their number.
        group: The k ranks. None: all ranks.
    """
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    return arriving


class _Exchange(Function):
    """An all-to-all, which another one undoes: also that of the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        given: Counts,
        taken: Counts,
        group: dist.ProcessGroup | None,
    ) -> Tensor:
        """Return the rows that arrive."""
        ctx.back = taken, given, group
        return _all_to_all(x, given, taken, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Send the gradients back to where the rows came from."""
        return _all_to_all(gradient, *ctx.back), None, None, None


def _all_to_all(
    x: Tensor, given: Counts, taken: Counts, group: dist.ProcessGroup | None
) -> Tensor:
    """Return the rows that arrive, without a gradient."""
    arrives = x.new_empty(sum(taken), *x.shape[1:])
    dist.all_to_all_single(arrives, x.contiguous(), taken, given, group=group)
    return arrives
