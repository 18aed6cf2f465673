"""PyTorch's own engine for split layers: the program of one rank.

``launch`` runs it in real processes, ``sim.launch`` on simulated devices. All
ranks are given the same layers and batch. dpkit's split layers must equal the
results.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

from dpbook.common.engine_pairs import Pair, Step, traced, traced_here
from dpkit import devices, sim
from dpkit.layer_partition import ParallelMLP, full_tensors
from dpkit.processes import rank_device
from dpkit.runs import launch

Loss = Callable[[Tensor, Tensor], Tensor]


def split_by_torch(mlp: nn.Sequential) -> nn.Sequential:
    """Split two layers over all ranks by DTensor, on this rank's device.

    Each rank has some columns of the first weight, in the sense of X·W, and
    the same rows of the second. ``mlp`` is a linear layer, an activation and a
    linear layer; the ranks must divide the hidden size.
    """
    device = rank_device()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(mlp.to(device), mesh, plan)
    return mlp


def tensor_parallel_step(
    mlp: nn.Sequential, X: Tensor, y: Tensor, loss_fn: Loss
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run one forward and backward of two split layers by DTensor.

    Args:
        mlp: What ``split_by_torch`` takes: two dense layers, and what lies
            between them.
        X: The whole batch, shape (b, …), on each rank.
        y: What it should give, shape (b, …).
        loss_fn: From outputs and y to the mean loss.

    Returns:
        The loss, and the gradients by name, joined from all ranks.
    """
    split_by_torch(mlp)
    loss = loss_fn(mlp(X.to(rank_device())), y.to(rank_device()))
    loss.backward()
    return loss.detach(), {
        name: p.grad.full_tensor()
        for name, p in mlp.named_parameters()
        if isinstance(p.grad, DTensor)
    }


def torch_step(mlp: nn.Sequential, X: Tensor, y: Tensor) -> Step:
    """Trace the second step of two layers that DTensor splits."""
    split_by_torch(mlp)
    x = X.to(rank_device()).requires_grad_()
    target = y.to(rank_device())

    def step() -> None:
        mlp.zero_grad()
        F.mse_loss(mlp(x), target).backward()

    step()
    x.grad = None
    timeline = traced(step)
    grads = [p.grad for p in mlp.parameters()]
    whole = [g.full_tensor() for g in grads if isinstance(g, DTensor)]
    return Step(timeline, [g.cpu() for g in whole])


def our_step(
    mlp: nn.Sequential, X: Tensor, y: Tensor, world_size: int
) -> Step:
    """Trace a step of the same layers, split by ours.

    Args:
        mlp: Two dense layers, and what lies between them.
        X: The whole batch, shape (b, …).
        y: What it should give, shape (b, …).
        world_size: The number of devices.
    """
    ranks = devices(world_size, "sim")
    first, activation, second = (cast("Any", layer) for layer in mlp)
    split = ParallelMLP(first, activation, second, ranks)
    xs = [X.to(device).requires_grad_() for device in ranks]
    targets = [y.to(device) for device in ranks]

    def step() -> None:
        losses = map(F.mse_loss, split(xs), targets)
        torch.autograd.backward(list(losses))

    timeline = traced_here(step, ranks)
    grads = full_tensors(split, _gradient)
    return Step(timeline, [g.cpu() for g in grads.values()])


def _gradient(p: nn.Parameter) -> Tensor:
    assert p.grad is not None
    return p.grad


def split_layers_pair(
    world_size: int = 4, width: int = 1024, rows: int = 512, **machine: Any
) -> Pair:
    """Trace a step of two split layers, by our engine and by PyTorch's.

    There are 4·width values between the layers.

    Args:
        world_size: The number of devices.
        width: The values that go into the first layer, and come out of the
            second.
        rows: The examples of the batch.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    torch.manual_seed(0)
    inner = nn.Linear(width, 4 * width), nn.GELU()
    mlp = nn.Sequential(*inner, nn.Linear(4 * width, width))
    X, y = torch.randn(2, rows, width)
    with sim.machine(**{"hosts": "per_device", **machine}):
        ours = our_step(mlp, X, y, world_size)
        theirs, *_ = launch(torch_step, world_size, mlp, X, y)
    return Pair("two layers split", ours, theirs)
