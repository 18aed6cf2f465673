"""Batch norm over the rows of all ranks, as though they lay on one device.

Each channel's numbers cross the network twice, far fewer than activations::

    forward    rank 0   count, mean, squares ─┐            ┌▶ normalize
               rank 1   count, mean, squares ─┴▶ combine ──┴▶ normalize
    backward   rank 0   Σ dy, Σ dy·x̂ ─┐                    ┌▶ dx
               rank 1   Σ dy, Σ dy·x̂ ─┴▶ sum ──────────────┴▶ dx

The gradients of weight and bias stay sums over this rank's rows: reducing
them, like all gradients of parameters, is the business of data parallelism.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from dpkit.batch_norm.moments import (
    Moments,
    check_input,
    combine,
    moments,
    normalize_alone,
    statistics_dtype,
    update_running,
)


class SyncBatchNorm(_BatchNorm):
    """Normalize each channel by its mean and variance over all ranks.

    In training, the outputs, the gradients and the running statistics are
    those that ``nn.BatchNorm1d``, ``2d`` or ``3d`` gives on one device that
    has the rows of all ranks. Ranks may differ in their number of rows, and
    one may have none. All ranks have to run it equally often, and backward as
    well, also a rank without rows. The host waits for the number of values.
    In evaluation mode, and where there is no process group, nothing is sent.

    Parameters, buffers and arguments are those of ``nn.BatchNorm2d``.

    Raises:
        ValueError: a channel has fewer than two values over all ranks.

    Example:
        Without a process group, the rows are all there are:

        >>> norm = dpkit.batch_norm.SyncBatchNorm(1, eps=0.0)
        >>> norm(torch.tensor([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]

    Source:
        S. Ioffe, C. Szegedy, Batch normalization, arXiv:1502.03167, for the
        operation on one device.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the rows of this rank, shape (rows, channels, …)."""
        check_input(self, x)
        if not self.training:
            return normalize_alone(self, x, own=self.running_mean is None)
        batch = over_ranks(moments(x))
        update_running(self, batch)
        y: Tensor = Normalize.apply(x, self.weight, self.bias, batch, self.eps)
        return y


class Normalize(torch.autograd.Function):
    """Normalize with given statistics, which depend on all ranks' rows.

    With n values in a channel over all ranks, mean m and variance v::

        x̂ = (x − m) / √(v + eps)         y = w·x̂ + b
        dw = Σ dy·x̂      db = Σ dy                        (this rank's rows)
        dx = w / √(v + eps) · (dy − (Σ dy + x̂·Σ dy·x̂) / n)   (all ranks')

    The two terms that are taken away are what dy does through m and v.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        batch: Moments,
        eps: float,
    ) -> Tensor:
        """Return y, of the shape and dtype of x.

        Args:
            ctx: Keeps what backward needs.
            x: The rows of this rank, shape (rows, channels, …).
            weight: w, shape (channels,); None: ones.
            bias: b, shape (channels,); None: zeros.
            batch: The moments of the rows of all ranks.
            eps: Is added to the variance, and keeps the root from zero.
        """
        scale = (batch.variance + eps).rsqrt()
        x_hat = (x - channels(batch.mean, x)) * channels(scale, x)
        ctx.save_for_backward(x, weight, batch.mean, scale, batch.num_values)
        ctx.has_bias = bias is not None
        y = x_hat if weight is None else x_hat * channels(weight, x)
        y = y if bias is None else y + channels(bias, x)
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, scale, count = ctx.saved_tensors
        kind = statistics_dtype(x)
        dy = dy.to(kind)
        x_hat = (x - channels(mean, x)) * channels(scale, x)
        others = [d for d in range(x.dim()) if d != 1]
        mine = torch.stack([dy.sum(others), (dy * x_hat).sum(others)])
        total = mine.clone()
        if num_ranks() > 1:
            dist.all_reduce(total)
        sum_dy, sum_dy_x_hat = total / count
        dx = dy - channels(sum_dy, x) - x_hat * channels(sum_dy_x_hat, x)
        if weight is not None:
            scale = scale * weight
        dx = (dx * channels(scale, x)).to(x.dtype)
        db, dw = mine
        dw = None if weight is None else dw.to(weight.dtype)
        return dx, dw, db if ctx.has_bias else None, None, None


def over_ranks(mine: Moments) -> Moments:
    """Return the moments over all ranks, equal to the last bit on each."""
    batch = mine
    if num_ranks() > 1:
        # One message: [count, means of all channels, squares of all channels]
        row = torch.cat([mine.num_values[None], mine.mean, mine.squares])
        rows = [torch.empty_like(row) for _ in range(num_ranks())]
        dist.all_gather(rows, row)
        sizes = [1, len(mine.mean), len(mine.mean)]
        parts = [each.split(sizes) for each in rows]
        batch = combine([Moments(c[0], m, s) for c, m, s in parts])
    if batch.num_values < 2:
        raise ValueError(
            "a channel needs two values or more in training (values over all "
            f"ranks: {int(batch.num_values)})"
        )
    return batch


def num_ranks() -> int:
    """Return the number of ranks; one where there is no process group."""
    joined = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if joined else 1


def channels(values: Tensor, x: Tensor) -> Tensor:
    """Return values, shape (channels,), as (1, channels, 1, …) of x's rank."""
    return values.view(1, -1, *[1] * (x.dim() - 2))
