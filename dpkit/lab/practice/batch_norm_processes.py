"""Batch norm in real processes: what the chapter on practice launches."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.batch_norm import convert
from dpkit.lab.overlap.processes import ENGINES
from dpkit.processes import rank_device


class Normalized(NamedTuple):
    """What a batch norm made of this rank's rows.

    Attributes:
        outputs: Shape (rows, channels, …).
        input_gradients: The same shape.
        running_var: Shape (channels,).
    """

    outputs: Tensor
    input_gradients: Tensor
    running_var: Tensor


def my_part(X: Tensor) -> Tensor:
    """Return this rank's rows, as tensor_split cuts them, on its device."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    return X.tensor_split(num_ranks)[rank].to(rank_device())


def normalized(
    norm: nn.Module, synchronized: bool, X: Tensor, G: Tensor
) -> Normalized:
    """Normalize this rank's part of a batch, forward and backward.

    Args:
        norm: A batch norm of PyTorch, the same on every rank.
        synchronized: Whether ours takes its place.
        X: The whole batch, shape (b, channels, …).
        G: The gradients of its outputs, the same shape.
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
        engine: "ours" or "PyTorch's", which train data-parallel.
        net: The network, the same on every rank.
        X: The batches, shape (steps, b, …).
        y: Their labels, shape (steps, b).
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
