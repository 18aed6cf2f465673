"""AlexNet of 2012, small: two towers that talk in some of the layers.

::

    tower 0   conv1 ── conv2 ─┬─ conv3 ── conv4 ── conv5 ─┬─ dense6 ─┬─ …
                              ╳                           ╳          ╳
    tower 1   conv1 ── conv2 ─┴─ conv3 ── conv4 ── conv5 ─┴─ dense6 ─┴─ …

Each device has one tower: half of the channels of each layer. At a crossing
each tower takes the channels of both, elsewhere only its own. On one device
the layers without a crossing are convolutions with two groups.

Unlike in the paper, images are 28 by 28, with a first layer that suits them,
there is no dropout, and initial weights differ. Dense layers are convolutions
whose kernel covers the whole input, so that all eight are split alike.

Source:
    A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet classification with
    deep convolutional neural networks, NIPS 2012, sections 3.2 to 3.5.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from dpkit import ChannelParallelConv2d
from dpkit.layer_partition import Joined, Replicated

# Output channels of the five convolutions and of the dense layers, 2012.
WIDTHS_2012 = (96, 256, 384, 384, 256, 4096, 4096)
LAYERS = tuple(f"{'conv' if n <= 5 else 'dense'}{n}" for n in range(1, 9))
TALK_2012 = ("conv3", "dense6", "dense7", "dense8")
KERNELS = (5, 5, 3, 3, 3, 2, 1, 1)  # of 28 pixels, pooling leaves 2


class TowerNorm(nn.Module):
    """Response normalization over the channels of each tower by itself."""

    def __init__(self, num_towers: int) -> None:
        super().__init__()
        self.num_towers = num_towers
        # The constants of section 3.3. PyTorch divides alpha by the number of
        # neighbours; the paper does not.
        self.norm = nn.LocalResponseNorm(5, alpha=5 * 1e-4, beta=0.75, k=2.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized (b, channels, height, width)."""
        # (3, 96, 12, 12) of two towers is normalized as (6, 48, 12, 12).
        towers = x.reshape(-1, x.shape[1] // self.num_towers, *x.shape[2:])
        normalized: Tensor = self.norm(towers)
        return normalized.view_as(x)


def alexnet(
    num_towers: int = 2,
    talk: Collection[str] = TALK_2012,
    scale: float = 1 / 8,
) -> nn.Sequential:
    """Make AlexNet for images (b, 1, 28, 28) of 10 classes, on one device.

    In the layers of ``talk`` a tower takes the channels of all towers.
    ``scale`` is the width of the layers, as a fraction of that of 2012.

    Example:
        >>> net = alexnet()
        >>> net.conv3.weight.shape, net.conv4.weight.shape  # all, own half
        (torch.Size([48, 32, 3, 3]), torch.Size([48, 24, 3, 3]))
        >>> net(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 10])
    """
    _check_talk(talk)
    widths = [1, *(round(scale * n) for n in WIDTHS_2012), 10]
    generator = torch.Generator().manual_seed(0)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, name in enumerate(LAYERS):
        groups = 1 if i == 0 or name in talk else num_towers
        conv = _convolution(
            inputs=widths[i],
            outputs=widths[i + 1],
            kernel=KERNELS[i],
            groups=groups,
        )
        nn.init.kaiming_normal_(conv.weight, generator=generator)
        nn.init.zeros_(conv.get_parameter("bias"))
        layers[name] = conv
        if name != "dense8":
            layers[f"relu{i + 1}"] = nn.ReLU()
        if name in ("conv1", "conv2"):
            layers[f"norm{i + 1}"] = TowerNorm(num_towers)
        if name in ("conv1", "conv2", "conv5"):
            layers[f"pool{i + 1}"] = nn.MaxPool2d(kernel_size=3, stride=2)
    layers["scores"] = nn.Flatten()
    return nn.Sequential(layers)


def _check_talk(talk: Collection[str]) -> None:
    unknown = ", ".join(sorted(set(talk) - set(LAYERS)))
    if unknown:
        known = ", ".join(LAYERS)
        raise ValueError(
            f"unknown layers to talk in (talk: {unknown}; known: {known})"
        )


def _convolution(
    *, inputs: int, outputs: int, kernel: int, groups: int
) -> nn.Conv2d:
    """Return a layer that keeps the size of images, or covers all of them."""
    padding = kernel // 2 if kernel > 2 else 0
    shape = {"kernel_size": kernel, "padding": padding, "groups": groups}
    conv: nn.Conv2d = skip_init(nn.Conv2d, inputs, outputs, **shape)
    return conv


def split_towers(
    net: nn.Sequential, devices: Sequence[torch.device]
) -> nn.Sequential:
    """Split a network of :func:`alexnet`: a tower for each device.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> net = split_towers(alexnet(), devices)
        >>> [tuple(part.weight.shape) for part in net.conv4.parts]
        [(24, 24, 3, 3), (24, 24, 3, 3)]
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for name, layer in net.named_children():
        if isinstance(layer, nn.Conv2d):
            gathers = layer.groups == 1 and name != "conv1"
            layers[name] = ChannelParallelConv2d(layer, devices, gathers)
        elif name == "scores":
            layers["joined"] = Joined(dim=1)
            layers[name] = Replicated(layer, devices)
        else:
            own = layer.norm if isinstance(layer, TowerNorm) else layer
            layers[name] = Replicated(own, devices)
    return nn.Sequential(layers)
