"""Data parallelism in real processes: what chapters launch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.data_parallel import DistributedDataParallel
from dpkit.lab.common.resnet import resnet18
from dpkit.placement import split_batch
from dpkit.processes import rank_device

Wrapper = DistributedDataParallel | nn.parallel.DistributedDataParallel
ENGINES: dict[str, Callable[[nn.Module], Wrapper]] = {
    "ours": DistributedDataParallel,
    "PyTorch's": nn.parallel.DistributedDataParallel,
}


def gradients(
    engine: str, net: nn.Module, X: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the gradients of a batch, from this rank's shard of it.

    Args:
        engine: "ours" or "PyTorch's".
        net: The network.
        X: The examples of the whole batch, shape (b, …).
        y: Their labels, shape (b,); the ranks divide b.
    """
    ranks = [rank_device()] * dist.get_world_size()
    X_shards, y_shards = split_batch(X, y, ranks)
    rank = dist.get_rank()
    parallel = ENGINES[engine](net.to(rank_device()))
    F.cross_entropy(parallel(X_shards[rank]), y_shards[rank]).backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


def in_order_of_readiness(order: list[list[int]]) -> list[float]:
    """Add up gradients in the order in which this rank has them: wrong.

    Args:
        order: For each rank, the order of its gradients. That of parameter i
            on rank r is 10 · i + r.

    Returns:
        The sums that this rank ends up with, one for each parameter.
    """
    rank = dist.get_rank()
    grads = [torch.tensor([10.0 * i + rank]) for i in range(len(order[rank]))]
    for i in order[rank]:
        dist.all_reduce(grads[i])
    return [grad.item() for grad in grads]


class Taken(NamedTuple):
    """What something took.

    Attributes:
        seconds: On the wall.
        core_seconds: How long a core worked for this rank.
    """

    seconds: float
    core_seconds: float


def measured_ways(rows: int = 8, repetitions: int = 3) -> dict[str, Taken]:
    """Time the parts and the ways of a step; return the quickest of each.

    The ways take turns, so that what slows the machine slows all.

    Args:
        rows: Images of 28×28 on each rank.
        repetitions: How often.
    """
    net = resnet18().to(rank_device())
    ours = DistributedDataParallel(resnet18().to(rank_device()))
    theirs = ENGINES["PyTorch's"](resnet18().to(rank_device()))
    X = torch.rand(rows, 1, 28, 28)
    y = torch.zeros(rows, dtype=torch.long)
    whole = torch.zeros(sum(p.numel() for p in net.parameters()))
    ways: dict[str, Callable[[], object]] = {
        "backward alone": lambda: _step(net, X, y),
        "allreduce alone": lambda: dist.all_reduce(whole),
        "one for each gradient": lambda: _one_each(net, X, y),
        "one for all": lambda: _one_for_all(net, X, y),
        "ours, without sync": lambda: _without_sync(ours, X, y),
        "ours": lambda: _step(ours, X, y),
        "PyTorch's": lambda: _step(theirs, X, y),
    }
    taken: dict[str, list[Taken]] = {name: [] for name in ways}
    for _ in range(repetitions + 1):
        for name, way in ways.items():
            dist.barrier()
            start, worked = time.perf_counter(), time.process_time()
            way()
            worked = time.process_time() - worked
            dist.barrier()
            seconds = time.perf_counter() - start
            taken[name].append(Taken(seconds, worked))
    return {name: min(found[1:]) for name, found in taken.items()}


def _step(net: nn.Module, X: Tensor, y: Tensor) -> None:
    net.zero_grad()
    torch.autograd.backward(F.cross_entropy(net(X), y))


def _without_sync(net: DistributedDataParallel, X: Tensor, y: Tensor) -> None:
    with net.no_sync():
        _step(net, X, y)


def _one_each(net: nn.Module, X: Tensor, y: Tensor) -> None:
    _step(net, X, y)
    for p in net.parameters():
        if p.grad is not None:
            p.grad /= dist.get_world_size()
            dist.all_reduce(p.grad)


def _one_for_all(net: nn.Module, X: Tensor, y: Tensor) -> None:
    _step(net, X, y)
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    whole = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    pieces = whole.split([grad.numel() for grad in grads])
    for grad, piece in zip(grads, pieces):
        grad.copy_(piece.view_as(grad))
