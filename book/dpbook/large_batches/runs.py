"""An experiment on large batches, small enough for one core.

A network is trained for a fixed number of epochs with a batch of k·b images,
the batch of k devices that have b each. One device takes the same step, up to
rounding. ``lr`` is the rate once the run is warm; ``seed`` decides parameters
and shuffling. At the end: the time of a step on k simulated devices.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from dpbook.common.batches import Batches
from dpbook.common.datasets import Labelled, load_fashion_mnist
from dpbook.common.loop import take_step
from dpbook.formulas.overlap import ring_seconds
from dpbook.overlap.runs import ALL_IN_ONE, simulated_step
from dpkit.sim.hardware import cluster

# A power of two, as batches are: a smaller last batch, with the rate of a
# large one, would upset the run.
NUM_EXAMPLES = 2**13

Rate = Callable[[int], float]


@dataclass(frozen=True)
class Recipe:
    """What all runs have in common."""

    batch_size: int = 16  # images on each device, the b of k·b
    lr: float = 0.01  # of one device
    momentum: float = 0.9
    num_epochs: int = 10
    warmup_epochs: int = 2  # the first of them, in which the rate warms up
    slow_from: float = 0.8  # of the run; from here on a tenth of the rate

    def steps_per_epoch(self, k: int) -> int:
        """Return the steps of an epoch with a batch of k·b."""
        return NUM_EXAMPLES // (k * self.batch_size)


RECIPE = Recipe()


def network(seed: int = 0) -> nn.Sequential:
    """Return five dense layers for images of shape (b, 1, 14, 14)."""
    generator = torch.Generator().manual_seed(seed)
    widths = (14 * 14, 64, 64, 64, 64, 10)
    layers: list[nn.Module] = [nn.Flatten()]
    for width, next_width in pairwise(widths):
        layer = nn.Linear(width, next_width)
        bound = width**-0.5  # as PyTorch draws them, but from our generator
        for p in layer.parameters():
            nn.init.uniform_(p, -bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# How the learning rate begins: three ways, each a function of the step. All
# end at the same rate. With low = 1, high = 4 and 6 steps to warm up:
#
#     step        0    1    2    3    4    5    6    7
#     none        4    4    4    4    4    4    4    4
#     constant    1    1    1    1    1    1    4    4
#     gradual     1   1.5   2   2.5   3   3.5   4    4
#
# Source: P. Goyal et al., Accurate, large minibatch SGD: training ImageNet in
# 1 hour, 2017, arXiv:1706.02677, section 2.2.


def no_warmup(step: int, num_steps: int, low: float, high: float) -> float:
    """Return the rate of a step: that of the whole run, from the start.

    Args:
        step: The number of steps taken.
        num_steps: Those of the warm-up.
        low: The rate of one device.
        high: The rate of the whole run.
    """
    return high


def constant_warmup(
    step: int, num_steps: int, low: float, high: float
) -> float:
    """Return the rate of a step: low for some steps, then high at once.

    Args:
        step: The number of steps taken.
        num_steps: Those of the warm-up.
        low: The rate of one device.
        high: The rate of the whole run.
    """
    return low if step < num_steps else high


def gradual_warmup(
    step: int, num_steps: int, low: float, high: float
) -> float:
    """Return the rate of a step, which rises by the same amount each.

    Args:
        step: The number of steps taken.
        num_steps: Those of the warm-up.
        low: The rate of one device.
        high: The rate of the whole run.
    """
    return low + (high - low) * min(step / num_steps, 1.0)


WARMUPS = {
    "none": no_warmup,
    "constant": constant_warmup,
    "gradual": gradual_warmup,
}


def schedule(
    k: int, lr: float, warmup: str = "none", recipe: Recipe = RECIPE
) -> Rate:
    """Return the learning rate of a run with a batch of k·b, by the step.

    Args:
        k: How many devices share a batch. Each has ``recipe.batch_size``
            examples.
        lr: The rate once the run is warm.
        warmup: How it gets there, a name in ``WARMUPS``.
        recipe: What all runs have in common.

    Example:
        >>> rate = schedule(k=64, lr=0.64, warmup="gradual")
        >>> [round(rate(step), 3) for step in (0, 1, 15, 16, 63, 64)]
        [0.01, 0.049, 0.601, 0.64, 0.64, 0.064]
    """
    per_epoch = recipe.steps_per_epoch(k)
    begin = WARMUPS[warmup]
    slow_from = round(recipe.slow_from * recipe.num_epochs * per_epoch)

    def rate(step: int) -> float:
        warm_from = recipe.warmup_epochs * per_epoch
        full = begin(step, warm_from, recipe.lr, lr)
        return full / 10 if step >= slow_from else full

    return rate


def steps(
    net: nn.Module, rate: Rate, k: int, seed: int, recipe: Recipe = RECIPE
) -> Iterator[int]:
    """Train without an end; yield the number of steps taken after each.

    Args:
        net: It is trained in place.
        rate: The number of steps taken -> the learning rate of the next.
        k: How many devices share a batch. Each has ``recipe.batch_size``
            examples.
        seed: Decides the shuffling.
        recipe: What all runs have in common.
    """
    images, labels = sets()[0]
    batches = Batches(
        images,
        labels,
        batch_size=k * recipe.batch_size,
        shuffle=True,
        seed=seed,
    )
    optimizer = torch.optim.SGD(net.parameters(), rate(0), recipe.momentum)
    step = 0
    while True:
        for X, y in batches:
            optimizer.param_groups[0]["lr"] = rate(step)
            take_step(net, optimizer, X, y)
            step += 1
            yield step


def final_error(
    k: int, lr: float, seed: int, warmup: str = "none", recipe: Recipe = RECIPE
) -> float:
    """Train with a batch of k·b for all epochs; return the test error.

    It is in percent. Guessing gives 90, and so do parameters that have
    overflowed.

    Args:
        k: How many devices share a batch. Each has ``recipe.batch_size``
            examples.
        lr: The rate once the run is warm.
        seed: Decides the first parameters and the shuffling.
        warmup: How the rate gets there, a name in ``WARMUPS``.
        recipe: What all runs have in common.
    """
    net = network(seed)
    num_steps = recipe.num_epochs * recipe.steps_per_epoch(k)
    rate = schedule(k, lr, warmup=warmup, recipe=recipe)
    for step in steps(net, rate, k=k, seed=seed, recipe=recipe):
        if step == num_steps:
            break
    return error_percent(net)


@torch.no_grad()
def error_percent(net: nn.Module) -> float:
    """Return the percent of test images put into a wrong class."""
    images, labels = sets()[1]
    wrong = net(images).argmax(dim=1) != labels
    return 100 * float(wrong.float().mean())


@cache
def sets() -> tuple[Labelled, Labelled]:
    """Return training and test images, shrunk to (n, 1, 14, 14)."""
    train_set, test_set = (
        Labelled(F.avg_pool2d(images, 2), labels)
        for images, labels in load_fashion_mnist()
    )
    return Labelled(*(part[:NUM_EXAMPLES] for part in train_set)), test_set


def simulated_seconds(k: int, link: str) -> float:
    """Return the simulated time of a step with b images on each of k devices.

    Forward, backward and the sum of the gradients; a process for each device.
    The update, which takes the same time for every k, is left out.
    """
    step = simulated_step(
        ALL_IN_ONE,
        make=lambda: nn.Sequential(nn.AvgPool2d(2), network()),
        num_devices=k,
        rows=RECIPE.batch_size,
        link=link,
    )
    return step.seconds


def predicted_seconds(k: int, link: str) -> float:
    """Return the same from one device and the cost of a ring, for any k."""
    alone = simulated_seconds(1, link)
    if k == 1:
        return alone
    num_bytes = sum(p.nbytes for p in network().parameters())
    joined = cluster(k, "v100", link, hosts="per_device")
    return alone + ring_seconds(num_bytes, joined)
