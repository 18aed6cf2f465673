"""Sums, means and seeds in real processes: what the chapter launches."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpkit.lab.overlap.processes import ENGINES
from dpkit.lab.practice.batch_norm_processes import my_part
from dpkit.processes import rank_device


def ddp_gradients(
    engine: str, weighted: bool, net: nn.Module, X: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the gradients that an engine leaves, from this rank's shard.

    Args:
        engine: "ours" or "PyTorch's".
        weighted: Whether each rank's loss counts as it has examples.
        net: The network, the same on every rank.
        X: The examples of the whole batch, shape (b, …).
        y: Their labels, shape (b,).
    """
    parallel = ENGINES[engine](net.to(rank_device()))
    X_shard, y_shard = my_part(X), my_part(y)
    loss = F.cross_entropy(parallel(X_shard), y_shard)
    if weighted:
        loss = loss * (len(X_shard) * dist.get_world_size() / len(X))
    loss.backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


def returned_and_reduced(number: float) -> tuple[str, float]:
    """Return what ``all_reduce`` returns, as text, and what it reduced."""
    total = torch.tensor(number + dist.get_rank())
    returned = dist.all_reduce(total)
    return repr(returned), total.item()


def dropout_mask(seed: int, own: bool, length: int) -> Tensor:
    """Return what dropout makes of ones on this rank, shape (length,).

    Args:
        seed: The seed that all ranks are given.
        own: Whether each adds its rank to it.
        length: How many ones.
    """
    torch.manual_seed(seed + dist.get_rank() * own)
    return F.dropout(torch.ones(length), p=0.5)
