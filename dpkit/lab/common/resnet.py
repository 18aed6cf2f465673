"""ResNet-18 for small images, and a step that trains it on many devices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torchvision  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.resnet import (  # type: ignore[import-untyped]
    BasicBlock,
)

from dpkit.collectives import allreduce
from dpkit.placement import split_batch


def resnet18(
    num_classes: int = 10, in_channels: int = 1, width: int = 64
) -> nn.Module:
    """Return ResNet-18 for images of about 28×28.

    Its first layer keeps the size of the image, and no pooling follows it:
    made for images of 224×224, the network would leave little of small ones.

    Args:
        num_classes: The number of scores.
        in_channels: 1 for grey images, 3 for colours.
        width: The channels of the first of its four groups of layers; each
            of the others has twice as many as the one before. ResNet-18 has
            64; with fewer it learns less, and faster.

    Returns:
        A module that takes shape (b, in_channels, 28, 28) and gives shape
        (b, num_classes).

    Example:
        >>> import torch
        >>> from dpkit.lab.common.resnet import resnet18
        >>> net = resnet18()
        >>> net(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
        >>> len(list(net.parameters()))
        62

    Source:
        K. He, X. Zhang, S. Ren, J. Sun, Deep residual learning for image
        recognition, CVPR 2016.
    """
    net: nn.Module = torchvision.models.resnet18(num_classes=num_classes)
    net.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    if width != 64:
        _set_width(net, width, num_classes)
    return net


def _set_width(net: nn.Module, width: int, num_classes: int) -> None:
    """Make all layers but the first again, with other channels."""
    net.bn1 = nn.BatchNorm2d(width)
    # What _make_layer takes for the channels so far.
    net.inplanes = width  # type: ignore[assignment]
    for i in range(4):
        blocks = net._make_layer(  # type: ignore[operator]
            BasicBlock, width * 2**i, blocks=2, stride=1 if i == 0 else 2
        )
        for layer in blocks.modules():
            if isinstance(layer, nn.Conv2d):  # as torchvision starts them
                nn.init.kaiming_normal_(
                    layer.weight, mode="fan_out", nonlinearity="relu"
                )
        setattr(net, f"layer{i + 1}", blocks)
    net.fc = nn.Linear(8 * width, num_classes)


def train_step(
    nets: Sequence[nn.Module],
    X: Tensor,
    y: Tensor,
    devices: Sequence[torch.device],
    lr: float = 0.1,
) -> None:
    """Take one step of SGD on all devices together.

    Batch norm takes each shard by itself, so that this is not exactly the
    step of one device.

    Args:
        nets: A replica of the network on each device.
        X: Images, shape (b, 1, 28, 28).
        y: Labels, shape (b,).
        devices: k devices.
        lr: The learning rate.

    Example:
        >>> import dpkit, torch
        >>> from dpkit.lab.common.resnet import resnet18, train_step
        >>> devices = dpkit.devices(1, kind="sim")
        >>> net = resnet18().to(devices[0])
        >>> train_step([net], torch.zeros(2, 1, 28, 28), torch.zeros(2).long(),
        ...            devices)
    """
    shards = zip(*split_batch(X, y, devices))
    losses = [
        F.cross_entropy(net(X), y, reduction="sum")
        for net, (X, y) in zip(nets, shards)
    ]
    torch.autograd.backward(losses)
    for copies in zip(*(net.parameters() for net in nets)):
        allreduce([p.grad for p in copies if p.grad is not None])
    for net in nets:
        optimizer = torch.optim.SGD(net.parameters(), lr / len(X))
        optimizer.step()
        optimizer.zero_grad()
