"""A published recipe for ResNet-18, on a network that a CPU can train.

The recipe: weights drawn with standard deviation 0.01, plain SGD, ten epochs,
and one of the ``WAYS``. The network is an eighth as wide and the images are
half as large; all else is as in the recipe.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from dpbook.common.batches import Batches
from dpbook.common.datasets import Labelled
from dpbook.common.loop import train_epoch
from dpbook.common.resnet import resnet18
from dpkit import DataParallel, evaluate_accuracy

WIDTH = 8
DEVIATION = 0.01
TEST_ROWS = 500


@dataclass(frozen=True)
class Way:
    """What differs between the runs that are compared."""

    num_devices: int  # replicas that share a batch
    batch_size: int  # rows of a whole batch
    lr: float


WAYS = {
    "256 rows on one": Way(1, 256, 0.1),
    "512 rows on one": Way(1, 512, 0.2),
    "512 rows on two": Way(2, 512, 0.2),
}


@dataclass(frozen=True)
class Epoch:
    """What is known after an epoch; accuracies are those on the test set."""

    loss: float  # the mean training loss over its examples
    accuracy: float  # with the running statistics of batch norm
    accuracy_of_batches: float  # with the statistics of each test batch


def epochs_of(
    way: Way,
    seed: int,
    *,
    train_set: Labelled,
    test_set: Labelled,
    devices: Sequence[torch.device],
    width: int = WIDTH,
) -> Iterator[Epoch]:
    """Train by the recipe, without end; yield what each epoch gave.

    Args:
        way: One of ``WAYS``: how many devices, which batch and which rate.
        seed: Decides the first weights and the shuffling.
        train_set: Square images, shape (n, 1, s, s), with their labels.
        test_set: Other images of that shape, with their labels.
        devices: As many as the way asks for, or more; the first are used.
        width: The channels of the first of the four groups of layers.
    """
    devices = devices[: way.num_devices]
    inner = initial_net(width, seed).to(devices[0])
    inner = inner.to(memory_format=torch.channels_last)  # a CPU is quicker so
    net = DataParallel(inner, devices)
    optimizer = torch.optim.SGD(net.parameters(), way.lr)
    batches = Batches(*train_set, way.batch_size, shuffle=True, seed=seed)
    test_batches = Batches(*test_set, TEST_ROWS)
    while True:
        loss = train_epoch(net, optimizer, batches)
        accuracies = [
            evaluate_accuracy(module, test_batches, devices[:1])
            for module in (inner, _with_batch_statistics(inner))
        ]
        yield Epoch(loss, *accuracies)


def initial_net(width: int, seed: int) -> nn.Module:
    """Return ResNet-18 with the weights that the recipe starts from."""
    net = resnet18(width=width)
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.normal_(module.weight, std=DEVIATION, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return net


def half_size(data: Labelled) -> Labelled:
    """Return images with half the rows and columns: means of four values."""
    return Labelled(F.avg_pool2d(data.images, 2), data.labels)


def _with_batch_statistics(net: nn.Module) -> nn.Module:
    """Return a copy whose batch norm uses the statistics of each batch."""
    found = copy.deepcopy(net)
    for module in found.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    return found
