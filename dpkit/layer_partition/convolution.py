"""Convolutions of which every device computes some of the channels."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpkit.layer_partition.conjugates import (
    allreduce_backward,
    reduce_scatter_backward,
)
from dpkit.layer_partition.shards import (
    SplitModule,
    bias_shards,
    checked_sizes,
    shards_of,
)


class ChannelParallelConv2d(SplitModule):
    """A convolution of which each device computes some output channels.

    It gives shards of the channels. What it takes depends::

        groups   gather_input   takes     each device convolves
        1        True           shards    all channels, gathered from all
        1        False          replicas  all channels, which it has
        k · m    False          shards    its own channels, and sends nothing

    The last is what a convolution with groups does on one device.

    Args:
        conv: The layer to split; its parameters are copied.
        devices: k devices, no more than the layer has output channels.
        gather_input: Whether the input is shards that all devices need.

    Attributes:
        parts: The convolution of each device.

    Raises:
        TypeError: ``devices`` is no list.
        ValueError: there are more devices than output channels, or groups
            that do not fit the table.

    Example:
        >>> from dpkit.layer_partition import ChannelParallelConv2d
        >>> devices = dpkit.devices(2, kind="sim")
        >>> conv = torch.nn.Conv2d(3, 5, kernel_size=3, padding=1)
        >>> layer = ChannelParallelConv2d(conv, devices)
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
        devices: Sequence[torch.device],
        gather_input: bool = True,
    ) -> None:
        super().__init__()
        total = conv.out_channels
        sizes = checked_sizes(None, total, "output channels", devices)
        k = len(devices)
        if conv.groups > 1 and (gather_input or conv.groups % k):
            raise ValueError(
                "a convolution with groups is split where each device has "
                "whole groups, and gathers nothing (groups: "
                f"{conv.groups}, devices: {k}, gather_input: {gather_input})"
            )
        weights = shards_of(conv.weight, sizes, devices)
        biases = bias_shards(conv.bias, sizes, devices)
        self.parts = nn.ModuleList(
            _part(conv, weight, bias, k)
            for weight, bias in zip(weights, biases, strict=True)
        )
        self.gather_input = gather_input
        self.grouped = conv.groups > 1

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return shards (b, channels of r, …) of lists as told above."""
        if self.gather_input:
            xs = reduce_scatter_backward(xs, dim=1)
        elif not self.grouped:
            xs = allreduce_backward(xs)
        return [part(x) for part, x in zip(self.parts, xs, strict=True)]


def _part(
    conv: nn.Conv2d,
    weight: nn.Parameter,
    bias: nn.Parameter | None,
    num_devices: int,
) -> nn.Conv2d:
    """Return a convolution like the given one, with these parameters."""
    # 4 groups of 6 inputs on 2 devices: 2 groups and 3 inputs for each.
    share = num_devices if conv.groups > 1 else 1
    part = nn.Conv2d(
        conv.in_channels // share,
        len(weight),
        conv.kernel_size,  # type: ignore[arg-type]
        stride=conv.stride,  # type: ignore[arg-type]
        padding=conv.padding,  # type: ignore[arg-type]
        dilation=conv.dilation,  # type: ignore[arg-type]
        groups=conv.groups // share,
        bias=False,
        padding_mode=conv.padding_mode,
        device="meta",
    )
    part.weight = weight
    part.register_parameter("bias", bias)
    return part
