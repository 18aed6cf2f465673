"""ResNet-18 for small images."""

import torchvision  # type: ignore[import-untyped]
from torch import nn
from torchvision.models.resnet import (  # type: ignore[import-untyped]
    BasicBlock,
)


def resnet18(width: int = 64) -> nn.Module:
    """Return ResNet-18 for grey images of about 28×28, and ten classes.

    Its first layer keeps the size of the image, and no pooling follows it:
    made for images of 224×224, the network would leave little of small ones.

    ``width`` is the channels of the first of its four groups of layers; each
    of the others has twice as many as the one before.

    Source:
        K. He, X. Zhang, S. Ren, J. Sun, Deep residual learning for image
        recognition, CVPR 2016.
    """
    net: nn.Module = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    if width != 64:
        _set_width(net, width)
    return net


def _set_width(net: nn.Module, width: int) -> None:
    """Replace all layers but the first by layers with other channels."""
    net.bn1 = nn.BatchNorm2d(width)
    # What _make_layer takes for the channels so far.
    net.inplanes = width  # type: ignore[assignment]
    for i in range(4):
        blocks = net._make_layer(  # type: ignore[operator]
            BasicBlock, width * 2**i, blocks=2, stride=1 if i == 0 else 2
        )
        for layer in blocks.modules():
            if isinstance(layer, nn.Conv2d):  # as torchvision starts them
                nn.init.kaiming_normal_(layer.weight, 0, "fan_out", "relu")
        setattr(net, f"layer{i + 1}", blocks)
    net.fc = nn.Linear(8 * width, 10)
