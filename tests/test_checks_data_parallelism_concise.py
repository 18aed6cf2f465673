"""The checks on the wrapper and on scaling tell wrong answers from right."""

from math import ceil

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.lab.common.checks import failure


def named(name, answer):
    answer.__name__ = name
    return answer


def speedups(seconds, weak):
    return {k: (k if weak else 1) * seconds[1] / t for k, t in seconds.items()}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda s, weak: speedups(s, True), "strong scaling"),
        (lambda s, weak: speedups(s, False), "weak scaling"),
        (lambda s, weak: {k: t / s[1] for k, t in s.items()}, "weak scaling"),
        (lambda s, weak: list(speedups(s, weak).values()), "not a number for"),
        (lambda s, weak: None, "it returned None"),
    ],
)
def test_wrong_speedups(answer, why):
    assert why in failure(named("speedups", answer))


def best(unsplit, split, added):
    def seconds(k):
        return unsplit + split / k + added * (k - 1)

    return min(range(1, 2000), key=seconds)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda a, b, c: int((b / c) ** 0.5), "it returned 0, expected 1"),
        (lambda a, b, c: max(1, int((b / c) ** 0.5)), "expected"),
        (lambda a, b, c: round(((a + b) / c) ** 0.5), "expected"),
        (lambda a, b, c: max(1, ceil((b / c) ** 0.5)), "expected 316"),
        (lambda a, b, c: max(1, round((b / c) ** 0.5)), "expected 3"),
        (lambda a, b, c: (b / c) ** 0.5, "expected"),
        (lambda a, b, c: None, "it returned None"),
    ],
)
def test_wrong_numbers_of_devices(answer, why):
    assert why in failure(named("best_num_devices", answer))


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


def from_scores(module, devices, X, y):
    """Right in number, but all scores were gathered."""
    scores = dpkit.DataParallel(module, devices)(X)
    losses = F.cross_entropy(scores, y.to(scores.device), reduction="none")
    parts = losses.tensor_split(len(devices))
    return torch.stack([part.sum() for part in parts]) / len(X)


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
        (from_scores, "more than losses"),
        (on_the_first, "sim:1 received nothing"),
        (detached, "the gradient of the sum"),
        (lambda *args: right(*args).sum(), "not 1 losses"),
        (lambda *args: len(args[2]) * right(*args), "the losses add up to"),
        (lambda *args: None, "it returned None"),
    ],
)
def test_wrong_losses(answer, why):
    assert why in failure(named("shard_losses", answer))


def replication(sizes, k, alpha, beta, tree, together):
    rounds = (k - 1).bit_length() if tree else k - 1
    messages = 1 if together else len(sizes)
    return rounds * (messages * alpha + sum(sizes) * beta)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda s, k, a, b, t, g: replication(s, k, a, b, False, g), "tree"),
        (lambda s, k, a, b, t, g: replication(s, k, a, b, t, False), "True"),
        (lambda s, k, *rest: replication(s, k + 1, *rest), "1 devices"),
        (lambda *args: None, "it returned None"),
    ],
)
def test_wrong_seconds(answer, why):
    assert why in failure(named("replicate_seconds", answer))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("speedups", speedups),
        ("best_num_devices", best),
        ("shard_losses", right),
        ("replicate_seconds", replication),
    ],
)
def test_right_answers(name, answer):
    assert failure(named(name, answer)) is None
