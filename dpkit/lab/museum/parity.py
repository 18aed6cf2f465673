"""A step on k devices beside the step of plain PyTorch on one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dpkit.data_parallel.step import train_batch
from dpkit.lab.museum.exhibit import Devices, Version, claim
from dpkit.machine import devices
from dpkit.placement import replicate

Replicas = Sequence[Sequence[Tensor]]
LR = 0.1


def task(rows: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Draw X, y and first parameters in float64; later rows are larger."""
    generator = torch.Generator().manual_seed(rows)
    X = torch.randn(rows, 4, generator=generator).double()
    X *= torch.arange(1, rows + 1)[:, None]
    y = X.sum(dim=1, keepdim=True) + 1
    return X, y, [torch.zeros(4, 1).double(), torch.zeros(1).double()]


def line(X: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return what the linear regression predicts, shape (rows, 1)."""
    w, b = params
    return X @ w + b


def squares(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each example, shape (rows,)."""
    return (outputs - y).square().sum(dim=1) / 2


def step_of_all(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step with the sum over all examples, divided once."""
    train_batch(line, squares, X, y, device_params, devices, lr)


def step_of_one(X: Tensor, y: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return the step of plain PyTorch, all parameters in one vector."""
    own = [p.clone().requires_grad_() for p in params]
    torch.autograd.backward(squares(line(X, own), y).mean())
    torch.optim.SGD(own, LR).step()
    return flat(own) - flat(params)


def flat(params: Sequence[Tensor]) -> Tensor:
    """Return all numbers of the parameters in one vector, on the CPU."""
    return torch.cat([p.detach().cpu().flatten() for p in params])


def compare_steps(version: Version, k: int, rows: int) -> None:
    """Claim that every replica takes the step that one device takes."""
    X, y, params = task(rows)
    ranks = devices(k)
    replicas = replicate(params, ranks)
    version(X, y, replicas, ranks, LR)
    wanted = step_of_one(X, y, params)
    for rank, replica in enumerate(replicas):
        found = flat(replica) - flat(params)
        claim(
            torch.allclose(found, wanted, rtol=1e-10),
            f"rank {rank} takes another step than one device (devices: {k}, "
            f"rows: {rows}, lengths: {found.norm() / wanted.norm():.2f} to 1)",
        )
