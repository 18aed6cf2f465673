"""What the chapter on batch norm launches in real processes, on each rank.

An engine is "ours" or "PyTorch's". A network is the same on every rank; X and
y are the examples and labels of a whole batch, of which a rank takes its part.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.overlap.programs import ENGINES, Wrapper, my_part
from dpkit.batch_norm import convert
from dpkit.processes import rank_device

Count = Callable[..., Tensor]  # of the wrapper, the examples, the labels
NUM_STEPS = 2  # after the first, PyTorch's engine orders its buckets again


def ddp_gradients(
    engine: str, weighted: bool, net: nn.Module, X: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the gradients that an engine leaves, from this rank's shard.

    Args:
        engine: "ours" or "PyTorch's".
        weighted: Whether each rank's loss is weighted by its share of the
            examples.
        net: The same on each rank.
        X: The examples of the whole batch, shape (b, …).
        y: Their labels, shape (b,).
    """
    parallel = ENGINES[engine](net.to(rank_device()))
    X_shard = my_part(X)
    y_shard = my_part(y)
    loss = F.cross_entropy(parallel(X_shard), y_shard)
    if weighted:
        loss = loss * (len(X_shard) * dist.get_world_size() / len(X))
    loss.backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


# Batch norm


class Normalized(NamedTuple):
    """What a batch norm made of this rank's rows."""

    outputs: Tensor  # shape (rows, channels, …)
    input_gradients: Tensor  # the same shape
    running_var: Tensor  # shape (channels,)


def normalized(
    norm: nn.Module, synchronized: bool, X: Tensor, G: Tensor
) -> Normalized:
    """Normalize this rank's part of a batch, forward and backward.

    Args:
        norm: A batch norm, the same on each rank.
        synchronized: Whether ours replaces it, which takes the statistics of
            all ranks.
        X: The whole batch, shape (b, channels, …).
        G: The gradients of its outputs, of the same shape.
    """
    norm = (convert(norm) if synchronized else norm).to(rank_device())
    x = my_part(X).requires_grad_()
    y = norm(x)
    y.backward(my_part(G))
    assert x.grad is not None
    assert isinstance(norm.running_var, Tensor)
    return Normalized(y.detach(), x.grad, norm.running_var)


def trained_states(
    engine: str, net: nn.Module, X: Tensor, y: Tensor
) -> dict[str, Tensor]:
    """Train a network with synchronized batch norm; return its state.

    Args:
        engine: "ours" or "PyTorch's".
        net: The same on each rank.
        X: A batch for each step, shape (steps, b, …).
        y: Its labels, shape (steps, b).
    """
    net = convert(net).to(rank_device())
    parallel = ENGINES[engine](net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for X_step, y_step in zip(X, y):
        scores = parallel(my_part(X_step))
        loss = F.cross_entropy(scores, my_part(y_step), reduction="sum")
        optimizer.zero_grad()
        # The engine takes the mean over ranks; this makes it over examples.
        (loss * dist.get_world_size() / len(X_step)).backward()
        optimizer.step()
    return dict(net.state_dict())


# Evaluation after a training step. Before a forward, PyTorch's engine may
# send the buffers of rank 0 to all:
#
#     rank 0    training step │ evaluation: send buffers … waits for ever
#     rank 1    training step │ barrier: wait for rank 0 … waits for ever


def num_right(net: nn.Module, X: Tensor, y: Tensor) -> Tensor:
    """Count the examples whose largest score is that of their label."""
    device = next(net.parameters()).device
    X, y = X.to(device), y.to(device)
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
    """Take two steps, count right answers, then train on or end.

    Args:
        engine: "ours" or "PyTorch's".
        count: From the wrapped network, X and y to the number of right
            answers.
        trains_on: Whether the next training step follows at once. If not, the
            ranks wait for each other at a barrier.
        net: The same on each rank.
        X: The examples of the whole batch, shape (b, …).
        y: Their labels, shape (b,).
    """
    parallel = ENGINES[engine](net.to(rank_device()))
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
    """Return for three forwards if PyTorch's engine sends buffers before each.

    The first is in training, the others are in evaluation.
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


def locations(error: TimeoutError) -> list[str]:
    """Return what each rank was doing when its time was up, in short."""
    lines = str(error).splitlines()
    return [line.split(",")[0] for line in lines if line.startswith("rank ")]
