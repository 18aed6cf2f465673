"""Evaluation after a training step, in real processes: who waits for whom.

Before a forward, PyTorch's engine may send the buffers of rank 0 to all::

    rank 0    training step │ evaluation: send buffers … waits for ever
    rank 1    training step │ barrier: wait for rank 0 … waits for ever
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.lab.overlap.processes import ENGINES, Wrapper
from dpkit.lab.practice.batch_norm_processes import my_part

Count = Callable[..., Tensor]  # of the wrapper, the examples, the labels
NUM_STEPS = 2  # after the first, PyTorch's engine orders its buckets again


def num_right(net: nn.Module, X: Tensor, y: Tensor) -> Tensor:
    """Count the examples that a network gets right, as a tensor.

    Args:
        net: Gives scores of classes, shape (b, classes).
        X: The examples, shape (b, …).
        y: Their labels, shape (b,).
    """
    found: Tensor = (net(X).argmax(dim=1) == y).sum()
    return found


def rank_0_alone(parallel: Wrapper, X: Tensor, y: Tensor) -> Tensor:
    """Count right answers on rank 0, by the wrapper."""
    if dist.get_rank() > 0:
        return torch.tensor(0)
    return num_right(parallel, X, y)


def rank_0_by_module(parallel: Wrapper, X: Tensor, y: Tensor) -> Tensor:
    """Count right answers on rank 0, by the module in the wrapper."""
    if dist.get_rank() > 0:
        return torch.tensor(0)
    return num_right(parallel.module, X, y)


def summed_counts(parallel: Wrapper, X: Tensor, y: Tensor) -> Tensor:
    """Count right answers on every rank, in its part, and add them up."""
    count = num_right(parallel, my_part(X), my_part(y))
    dist.all_reduce(count)
    return count


def train(parallel: nn.Module, X: Tensor, y: Tensor) -> None:
    """Run forward and backward on this rank's part of a batch."""
    F.cross_entropy(parallel(my_part(X)), my_part(y)).backward()


def train_and_count(
    engine: str,
    count: Count,
    trains_on: bool,
    net: nn.Module,
    X: Tensor,
    y: Tensor,
) -> int:
    """Take two steps, count right answers, then meet or train on.

    Args:
        engine: "ours" or "PyTorch's".
        count: How to count: a function of the wrapper, X and y.
        trains_on: Whether the next training step follows at once; if not,
            the ranks meet at a barrier.
        net: The network, the same on every rank.
        X: The examples of the whole batch, shape (b, …).
        y: Their labels, shape (b,).

    Returns:
        What this rank has counted.
    """
    parallel = ENGINES[engine](net)
    for _ in range(NUM_STEPS):
        train(parallel, X, y)
    parallel.eval()
    with torch.no_grad():
        found = count(parallel, X, y)
    parallel.train()
    if trains_on:
        train(parallel, X, y)
    else:
        dist.barrier()
    return int(found)


def sends_buffers(net: nn.Module, X: Tensor) -> list[bool]:
    """Tell of three forwards if PyTorch's engine sends buffers before each.

    Args:
        net: The network, the same on every rank.
        X: The examples of the whole batch, shape (b, …).

    Returns:
        For a forward in training, and for two in evaluation.
    """
    parallel = nn.parallel.DistributedDataParallel(net)
    found = [parallel.will_sync_module_buffers()]
    parallel(my_part(X)).sum().backward()
    parallel.eval()
    for _ in range(2):
        found.append(parallel.will_sync_module_buffers())
        with torch.no_grad():
            parallel(my_part(X))
    return found


def whereabouts(error: TimeoutError) -> list[str]:
    r"""Return what each rank was doing when its time was up, in short.

    Args:
        error: What :meth:`dpkit.processes.Workers.run` has raised.

    Example:
        >>> whereabouts(TimeoutError("late\n\nrank 0 was in f(), for 3 s"))
        ['rank 0 was in f()']
    """
    lines = str(error).splitlines()
    return [line.split(",")[0] for line in lines if line.startswith("rank ")]
