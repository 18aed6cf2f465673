"""The checks of the exercises on the wrapper and how it scales."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dpbook.exercises.verdict import Answer, require, same
from dpkit import devices
from dpkit.traffic import Traffic


def check_shard_losses(answer: Answer) -> None:
    """They sum to the mean loss, gradients too; all devices compute theirs."""
    torch.manual_seed(0)
    module = nn.Linear(5, 1000).double()
    X = torch.rand(7, 5).double()
    y = torch.randint(1000, (7,))
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
            why = f"{rank} received nothing, so it computes no loss"
            require(traffic.received[rank] > 0, f"{k} devices: {why}")
        why = f"the first device received {received} bytes beside the images"
        require(received <= 8 * k, f"{why} and labels: more than losses")
        losses.sum().backward()
        grad = inner.weight.grad
        right = grad is not None and torch.allclose(grad.cpu(), gradient)
        why = "is not that of the mean loss over the batch"
        require(right, f"{k} devices: the gradient of the sum {why}")


def _check_losses(losses: Any, mean: float, k: int) -> None:
    """Require k losses that add up to the mean over 7 examples."""
    why = f"{k} devices: it returned {losses!r}, not {k} losses"
    require(isinstance(losses, torch.Tensor) and losses.shape == (k,), why)
    total = float(losses.detach().sum())
    why = f"the losses add up to {total:.4f}, expected {mean:.4f}"
    require(same(total, mean), f"7 examples on {k} devices: {why}")
