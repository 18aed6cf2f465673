"""The checks on the wrapper and on scaling tell wrong answers from right."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpbook.common.checks import failure


def named(name, answer):
    answer.__name__ = name
    return answer


class Loss(nn.Module):
    def __init__(self, module, reduction="sum"):
        super().__init__()
        self.module, self.reduction = module, reduction

    def forward(self, X, y):
        return F.cross_entropy(self.module(X), y, reduction=self.reduction)


def right(module, devices, X, y):
    return dpkit.DataParallel(Loss(module), devices)(X, y) / len(X)


def mean_of_means(module, devices, X, y):
    losses = dpkit.DataParallel(Loss(module, "mean"), devices)(X, y)
    return losses / len(devices)


def on_the_first(module, devices, X, y):
    """Right in number, but one device does it all."""
    shards = zip(*dpkit.split_batch(X, y, devices[:1] * len(devices)))
    losses = [
        F.cross_entropy(module(a), b, reduction="sum") for a, b in shards
    ]
    return torch.stack(losses) / len(X)


def detached(module, devices, X, y):
    return right(module, devices, X, y).detach().requires_grad_()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (mean_of_means, "the losses add up to"),
        (on_the_first, "sim:1 received nothing"),
        (detached, "the gradient of the sum"),
        (lambda *args: right(*args).sum(), "not 1 loss"),
        (lambda *args: len(args[2]) * right(*args), "the losses add up to"),
        (lambda *args: None, "it returned None"),
    ],
)
def test_wrong_losses(answer, why):
    assert why in failure(named("shard_losses", answer))


def test_the_right_losses():
    assert failure(named("shard_losses", right)) is None
