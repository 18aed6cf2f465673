"""The checks of the exercises on the wrapper and how it scales."""

from copy import deepcopy
from itertools import product
from math import ceil, log2
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dpkit.lab.common.traffic import Traffic
from dpkit.lab.common.verdict import Answer, require, require_same, same
from dpkit.machine import devices


def check_speedups(answer: Answer) -> None:
    """Both kinds of scaling, from the same seconds."""
    both = {1: 4.0, 2: 5.0, 4: 8.0}, {1: 60.0, 3: 25.0, 8: 40.0}
    for seconds, weak in product(both, (True, False)):
        expected = {
            k: (k if weak else 1) * seconds[1] / t for k, t in seconds.items()
        }
        found = answer(seconds, weak)
        is_dict = isinstance(found, dict) and found.keys() == expected.keys()
        words = f"not a number for each of {list(expected)}"
        require(is_dict, f"it returned {found!r}, {words}")
        case = f"{'weak' if weak else 'strong'} scaling, seconds {seconds}"
        words = f"{case}: it returned {found}, expected {expected}"
        require(all(same(found[k], expected[k]) for k in expected), words)


def check_best_num_devices(answer: Answer) -> None:
    """Where one is best, where the square root is whole, where it is not."""
    for unsplit, split, added in (
        (1.0, 8.0, 9.0),
        (1.0, 64.0, 1.0),
        (0.0, 60.0, 4.0),
        (20.0, 56.0, 9.0),
        (5.0, 1000.0, 0.01),
    ):
        seconds = {
            k: unsplit + split / k + added * (k - 1) for k in range(1, 1000)
        }
        expected = min(seconds, key=lambda k: seconds[k])
        found = answer(unsplit, split, added)
        case = f"unsplit {unsplit}, split {split}, added {added}"
        words = f"{case}: it returned {found!r}, expected {expected}"
        require(found == expected, f"{words} ({seconds[expected]:.2f} s)")


def check_shard_losses(answer: Answer) -> None:
    """They sum to the mean loss, gradients too; all devices compute theirs."""
    torch.manual_seed(0)
    module = nn.Linear(5, 1000).double()
    X, y = torch.rand(7, 5).double(), torch.randint(1000, (7,))
    expected = F.cross_entropy(module(X), y)
    gradient = torch.autograd.grad(expected, module.weight)[0]
    for k in (1, 3):
        ranks = devices(k, "sim")
        inner = deepcopy(module).to(ranks[0])
        with Traffic() as traffic:
            losses = answer(inner, ranks, X, y)
        _check_losses(losses, float(expected.detach()), k)
        # All but the bytes of images and labels.
        received = traffic.received[ranks[0]] - 8 * (X.numel() + len(y))
        for rank in ranks[1:]:
            words = f"{rank} received nothing, so it computes no loss"
            require(traffic.received[rank] > 0, f"{k} devices: {words}")
        words = f"the first device received {received} bytes beside the images"
        require(received <= 8 * k, f"{words} and labels: more than losses")
        losses.sum().backward()
        grad = inner.weight.grad
        right = grad is not None and torch.allclose(grad.cpu(), gradient)
        words = "is not that of the mean loss over the batch"
        require(right, f"{k} devices: the gradient of the sum {words}")


def _check_losses(losses: Any, mean: float, k: int) -> None:
    """Require k losses that add up to the mean over 7 examples."""
    words = f"{k} devices: it returned {losses!r}, not {k} losses"
    require(isinstance(losses, torch.Tensor) and losses.shape == (k,), words)
    total = float(losses.detach().sum())
    words = f"the losses add up to {total:.4f}, expected {mean:.4f}"
    require(same(total, mean), f"7 examples on {k} devices: {words}")


def check_replicate_seconds(answer: Answer) -> None:
    """One device, few and many; one message for each tensor, or for all."""
    sizes = [4000, 12, 800_000, 64]
    alpha, beta = 1e-5, 1e-9
    ways = (False, True)
    for k, tree, together in product((1, 2, 4, 5, 8), ways, ways):
        num_messages = 1 if together else len(sizes)
        once = num_messages * alpha + sum(sizes) * beta
        expected = (ceil(log2(k)) if tree else k - 1) * once
        case = f"{k} devices, tree={tree}, together={together}"
        found = answer(sizes, k, alpha, beta, tree, together)
        require_same(found, expected, case, ".7f")
