"""How a difference in the last bit grows while a network trains."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dpbook.common.models import lenet, lenet_params
from dpkit import devices, replicate, train_batch

LR = 0.1


class Compared(NamedTuple):
    """How two runs compare in a step."""

    num_flips: int  # activations above zero in one run and not in the other
    distance: float  # the largest of parameters, after the step


def two_runs(
    X: Tensor,
    y: Tensor,
    dtype: torch.dtype,
    activation: Callable[[Tensor], Tensor] = F.relu,
    counts: Sequence[int] = (1, 2),
) -> list[Compared]:
    """Train LeNet on two numbers of devices; return how the runs compare.

    Args:
        X: The batches, shape (steps, b, 1, 28, 28).
        y: Their labels, shape (steps, b).
        dtype: That of all values.
        activation: LeNet's.
        counts: The two numbers of devices.

    Example:
        >>> X, y = torch.rand(1, 5, 1, 28, 28), torch.arange(5).view(1, 5)
        >>> two_runs(X, y, torch.float32, counts=(2, 2))
        [Compared(num_flips=0, distance=0.0)]
    """
    net = partial(lenet, activation=activation)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    start = [p.to(dtype) for p in lenet_params()]
    machines = [devices(max(counts))[:k] for k in counts]
    replicas = [replicate(start, ranks) for ranks in machines]
    found = []
    for X_step, y_step in zip(X.to(dtype), y):
        one, other = (signs(X_step, params[0]) for params in replicas)
        for params, ranks in zip(replicas, machines):
            train_batch(net, loss, X_step, y_step, params, ranks, lr=LR)
        distance = max(
            float((p.detach().cpu() - q.detach().cpu()).abs().max())
            for p, q in zip(replicas[0][0], replicas[1][0])
        )
        found.append(Compared(int((one != other).sum()), distance))
    return found


@torch.no_grad()
def signs(X: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return which values that go into ReLU in LeNet are above zero."""
    seen = []

    def watched(h: Tensor) -> Tensor:
        seen.append((h > 0).flatten())
        return F.relu(h)

    lenet(X.to(params[0].device), params, activation=watched)
    return torch.cat(seen).cpu()
