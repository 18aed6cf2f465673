"""Convolutions of which every device computes some of the channels."""

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from dpkit.arguments import Devices, one_per_device
from dpkit.layer_partition.conjugates import (
    allreduce_backward,
    reduce_scatter_backward,
)
from dpkit.layer_partition.shards import (
    SplitModule,
    check_layer,
    checked_sizes,
    rows_of,
)
from dpkit.units import check_flag


class ChannelParallelConv2d(SplitModule):
    """A convolution of which each device computes some output channels.

    It gives shards of the channels. What it takes depends::

        groups   gather_input   takes     each device convolves
        1        True           shards    all channels, gathered from all
        1        False          replicas  all channels, which it has
        k · m    False          shards    its own channels, and sends nothing

    The last is what a convolution with groups does on one device. Where it
    takes replicas, the gradients of the input are added up in an allreduce.

    Args:
        conv: The layer whose parameters are copied into ``parts``, a
            convolution for each device.
        devices: k devices, each of which gets an output channel or more.
        gather_input: Whether the layer takes shards of the channels and
            gathers them; see the table.
        algorithm: That of the allreduce, as for :func:`dpkit.allreduce`.

    Raises:
        TypeError: it is no ``nn.Conv2d``.
        ValueError: there are more devices than output channels, groups that
            do not fit the table, or no such algorithm.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> conv = nn.Conv2d(3, 5, kernel_size=3, padding=1)
        >>> layer = dpkit.ChannelParallelConv2d(conv, devices)
        >>> xs = [torch.ones(4, n, 7, 6, device=d)
        ...       for n, d in zip((2, 1), devices)]
        >>> [tuple(y.shape) for y in layer(xs)]  # 3 + 2 = 5
        [(4, 3, 7, 6), (4, 2, 7, 6)]

    Source:
        A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet classification with
        deep convolutional neural networks, NIPS 2012, section 3.2.
    """

    def __init__(
        self,
        conv: nn.Conv2d,
        devices: Devices,
        gather_input: bool = True,
        algorithm: str = "ring",
    ) -> None:
        super().__init__()
        check_layer("conv", conv, nn.Conv2d, devices, algorithm)
        check_flag("gather_input", gather_input)
        self.algorithm = algorithm
        total = conv.out_channels
        sizes = checked_sizes(None, total, "output channels", devices)
        k = len(devices)
        if conv.groups > 1 and (gather_input or conv.groups % k):
            raise ValueError(
                "a convolution with groups is split where each device has "
                "whole groups, and gathers nothing (groups: "
                f"{conv.groups}, devices: {k}, gather_input: {gather_input})"
            )
        self.parts = nn.ModuleList(
            _part(conv, weight, bias, k)
            for weight, bias in rows_of(conv, sizes, devices)
        )
        self.gather_input = gather_input
        self.grouped = conv.groups > 1

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return shards (b, channels of r, …) of lists as told above."""
        xs = one_per_device(xs, len(self.parts))
        if self.gather_input:
            xs = reduce_scatter_backward(xs, dim=1)
        elif not self.grouped:
            xs = allreduce_backward(xs, self.algorithm)
        return [part(x) for part, x in zip(self.parts, xs, strict=True)]


def _part(
    conv: nn.Conv2d, weight: Tensor, bias: Tensor | None, num_devices: int
) -> nn.Conv2d:
    """Return a convolution like the given one, with these parameters."""
    # 4 groups of 6 inputs on 2 devices: 2 groups and 3 inputs for each.
    share = num_devices if conv.groups > 1 else 1
    # The parameters count as copied already, as weight and bias.
    copied = {id(conv.weight): weight}
    if bias is not None:
        copied[id(conv.bias)] = bias
    part = copy.deepcopy(conv, copied)
    part.groups = conv.groups // share
    part.in_channels = conv.in_channels // share
    part.out_channels = len(weight)
    return part
