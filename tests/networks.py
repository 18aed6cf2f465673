"""Small networks that tests of the library train.

Images have shape (b, 1, height, width) and scores (b, 10).
"""

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock

# Of convolutions, then of products of matrices; a bias follows each.
LENET_SHAPES = ((20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10))
LENET_FAN_IN = (9, 500, 800, 128)


def lenet_params(seed=0):
    """Draw the eight parameters of ``lenet``: weights, and biases of zero."""
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape, fan_in in zip(LENET_SHAPES, LENET_FAN_IN, strict=True):
        weight = torch.randn(shape, generator=generator)
        params.append(weight * (2 / fan_in) ** 0.5)
        params.append(torch.zeros(shape[0 if len(shape) == 4 else 1]))
    return params


def lenet(X, params):
    """Return the scores of images of 28×28, as a function of parameters."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2)
    h = F.avg_pool2d(F.relu(F.conv2d(h, W2, b2)), 2)
    h = F.relu(h.flatten(start_dim=1) @ W3 + b3)
    return h @ W4 + b4


def resnet18(width):
    """Return ResNet-18 for small images; its first layers have ``width``."""
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
    net.bn1, net.maxpool = nn.BatchNorm2d(width), nn.Identity()
    net.inplanes = width  # what _make_layer takes for the channels so far
    for i in range(4):
        layer = net._make_layer(
            BasicBlock, width * 2**i, blocks=2, stride=1 if i == 0 else 2
        )
        setattr(net, f"layer{i + 1}", layer)
    net.fc = nn.Linear(8 * width, 10)
    return net
