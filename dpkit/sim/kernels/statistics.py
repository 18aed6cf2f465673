"""What ``nn.SyncBatchNorm`` is made of: CUDA has it, and the CPU has not.

A batch lies in parts on several ranks. Each finds the mean and 1/σ of each
channel in its part, all ranks gather these with the number of elements n, and
each finds those of the whole. With parts of n₁ and n₂ elements::

    mean   (n₁ mean₁ + n₂ mean₂) / n
    σ²     (n₁ (σ₁² + mean₁²) + n₂ (σ₂² + mean₂²)) / n − mean²

The functions work on plain tensors, of the form (rows, channels, …). ``dy``
is the gradient of the output. For 16 bits, statistics and sums are float32,
and the outputs and the input's gradient are rounded once.

Source:
    PyTorch, aten/src/ATen/native/cuda/Normalization.cuh.
"""

from typing import Any

import torch
from torch import Tensor

from dpkit.sim.operators.operations import aten


def _each(of_channels: Tensor, x: Tensor) -> Tensor:
    """Return a vector by channel, viewed to broadcast against ``x``."""
    return of_channels.view(1, -1, *[1] * (x.dim() - 2))


def _others(x: Tensor) -> list[int]:
    """Return all dimensions of ``x`` except for that of the channels."""
    return [d for d in range(x.dim()) if d != 1]


def statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the mean and 1/σ of each channel."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = x.mean(_others(x))
    variance = x.var(_others(x), correction=0)
    return mean, (variance + eps).rsqrt()


def _joined(
    x: Tensor,
    means: Tensor,
    inverses: Tensor,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the mean and 1/σ of the whole, from those of each part.

    The running ones, where there are any, go on with them.
    """
    n = counts.sum()
    weights = counts.view(-1, 1)
    mean = (weights * means).sum(0) / n
    squares = inverses**-2 - eps + means**2
    variance = (weights * squares).sum(0) / n - mean**2
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean), momentum)
    if running_variance is not None:
        unbiased = variance * n / (n - 1)
        running_variance.lerp_(unbiased.to(running_variance), momentum)
    return mean, (variance + eps).rsqrt()


def normed(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    eps: float,
) -> Tensor:
    """Return the output of a batch normalization.

    Args:
        x: The input, of shape (batch, channels, …).
        weight: Of shape (channels,); None: 1.
        bias: Of shape (channels,); None: 0.
        mean: Of shape (channels,).
        inverse: 1 / √(variance + eps), of shape (channels,).
        eps: PyTorch passes it on; it is in ``inverse`` already.
    """
    y = (x - _each(mean, x)) * _each(inverse, x)
    if weight is not None:
        y = y * _each(weight, x)
    return (y if bias is None else y + _each(bias, x)).to(x.dtype)


def _sums(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    *wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Σ dy and Σ dy (x − mean), and the weight's and bias' gradient.

    The sums are over all but the channels. ``inverse`` is 1/σ of each channel.
    ``wanted`` says which of the results PyTorch will use; all are made.
    """
    dy = dy.to(mean.dtype)
    total = dy.sum(_others(x))
    product = (dy * (x - _each(mean, x))).sum(_others(x))
    dtype = mean.dtype if weight is None else weight.dtype
    of_bias = total.to(dtype, copy=True)
    return total, product, (product * inverse).to(dtype), of_bias


def _gradient(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    total: Tensor,
    product: Tensor,
    counts: Tensor,
) -> Tensor:
    """Return the input's gradient, from sums over all parts."""
    n = counts.sum()
    slope = _each(product / n * inverse**2, x)
    dx = dy - _each(total / n, x) - (x - _each(mean, x)) * slope
    dx = dx * _each(inverse, x)
    return (dx if weight is None else dx * _each(weight, x)).to(x.dtype)


SYNC_BATCH_NORM: dict[Any, Any] = {
    aten.batch_norm_stats.default: statistics,
    aten.batch_norm_gather_stats_with_counts.default: _joined,
    aten.batch_norm_elemt.default: normed,
    aten.batch_norm_backward_reduce.default: _sums,
    aten.batch_norm_backward_elemt.default: _gradient,
}
