"""Count, mean and sum of squares of some values, and of several together.

Two groups of values are one group whose spread is that within each and that
between their means::

    group 0    1 3        count 2, mean 2, squares 2     (1−2)² + (3−2)²
    group 1    5 7 9      count 3, mean 7, squares 8
    both                  count 5, mean 5, squares 40    2 + 8 + 2·3² + 3·2²

The squares are taken from the mean, never from zero: the difference of two
large sums of squares would have few digits left.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from dpkit.arguments import check_tensor


class Moments(NamedTuple):
    """What batch norm needs to know of the values of each channel.

    Example:
        >>> from dpkit.batch_norm import moments
        >>> group = moments(torch.tensor([[5.0], [7.0], [9.0]]))
        >>> group.mean, group.variance  # 8 / 3
        (tensor([7.]), tensor([2.6667]))
    """

    num_values: Tensor  #: how many each channel has, of no dimensions
    mean: Tensor  #: shape (channels,)
    squares: Tensor  #: of the distances from it, added up, shape (channels,)

    @property
    def variance(self) -> Tensor:
        """The mean square distance from the mean, shape (channels,)."""
        return self.squares / self.num_values


@torch.no_grad()
def moments(x: Tensor) -> Moments:
    """Return the moments of each channel of ``x``, shape (rows, channels, …).

    They are zero without rows, and in float32 for half precision.

    Example:
        >>> x = torch.tensor([[5.0], [7.0], [9.0]])
        >>> [part.tolist() for part in dpkit.batch_norm.moments(x)]
        [3.0, [7.0], [8.0]]
    """
    x = x.to(statistics_dtype(x)).transpose(0, 1).flatten(start_dim=1)
    count = x.new_tensor(x.shape[1])
    mean = x.sum(dim=1) / count.clamp(min=1)
    return Moments(count, mean, (x - mean[:, None]).square().sum(dim=1))


@torch.no_grad()
def combine(parts: Sequence[Moments]) -> Moments:
    """Return the moments of all values of several groups together.

    Groups have the same channels; they may differ in size, and be empty.

    Example:
        >>> from dpkit.batch_norm import combine, moments
        >>> x = torch.tensor([[1.0], [3.0], [5.0], [7.0], [9.0]])
        >>> both = combine([moments(x[:2]), moments(x[2:])])
        >>> [part.tolist() for part in both]
        [5.0, [5.0], [40.0]]

    Source:
        T. F. Chan, G. H. Golub, R. J. LeVeque, Algorithms for computing the
        sample variance, Yale University, technical report 222, 1981.
    """
    # The table above: counts 2 3, means 2 7, squares 2 8; mean 25/5 = 5 and
    # between 2·3² + 3·2² = 30.
    counts, means, squares = map(torch.stack, zip(*parts))
    counts = counts[:, None]
    count = counts.sum()
    mean = (counts * means).sum(dim=0) / count.clamp(min=1)
    between = (counts * (means - mean).square()).sum(dim=0)
    return Moments(count, mean, squares.sum(dim=0) + between)


def check_input(norm: _BatchNorm, x: Tensor) -> None:
    """Raise an error unless ``x`` is a float tensor with all channels."""
    check_tensor(x)
    if x.dim() < 2 or x.shape[1] != norm.num_features:
        raise ValueError(
            "the input has not the channels in its second dimension "
            f"(shape: {tuple(x.shape)}, channels: {norm.num_features})"
        )
    if not x.is_floating_point():
        raise TypeError(
            f"integers cannot be normalized (dtype: {x.dtype}); x.float() can"
        )


def statistics_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of statistics of ``x``: float32 for half precision."""
    return torch.promote_types(x.dtype, torch.float32)


def normalize_alone(norm: _BatchNorm, x: Tensor, own: bool) -> Tensor:
    """Normalize a batch by its ``own`` statistics, else by the running ones.

    The running statistics stay as they are.
    """
    return F.batch_norm(
        x,
        running_mean=None if own else norm.running_mean,
        running_var=None if own else norm.running_var,
        weight=norm.weight,
        bias=norm.bias,
        training=own,
        eps=norm.eps,
    )


@torch.no_grad()
def update_running(norm: _BatchNorm, batch: Moments) -> None:
    """Move the running statistics of a batch norm, as ``nn.BatchNorm2d`` does.

    The variance that it keeps is the unbiased one, and a momentum of None
    makes it the average of all batches so far.
    """
    if not norm.track_running_stats or norm.running_mean is None:
        return
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    weight = norm.momentum
    if weight is None:
        weight = 1 / int(norm.num_batches_tracked)
    # With a weight of 1/n, the mean of n batches: m + (x − m)/n.
    unbiased = batch.squares / (batch.num_values - 1)
    norm.running_mean.lerp_(batch.mean.to(norm.running_mean.dtype), weight)
    norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), weight)
