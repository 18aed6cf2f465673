"""What ranks run, on simulated devices and in real processes alike."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.sharding.engine import sharded
from dpbook.sharding.runs import Engine, dense_blocks
from dpkit import devices
from dpkit.processes import rank_device
from dpkit.sharding import Zero3

WIDTH = 7
COUNT = 3
ROWS = 12
# 427 parameters in a block, which 2, 3, 4 and 5 do not divide.


def small_blocks() -> list[nn.Module]:
    """Return blocks in float64, the same in each call."""
    torch.manual_seed(0)
    return [block.double() for block in dense_blocks(WIDTH, COUNT)]


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return the batch of a step: its examples, and what to make of them."""
    generator = torch.Generator().manual_seed(step)
    X = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.double)
    return X, X.roll(1, dims=1)


def adam(params: list[Tensor]) -> torch.optim.Optimizer:
    """Return Adam with a larger step than usual."""
    return torch.optim.Adam(params, lr=0.01)


def train_sharded(
    first: int,
    last: int,
    load_from: str | Path | None = None,
    save_to: str | Path | None = None,
) -> Tensor:
    """Train by ``fully_shard`` from one step to another, on this rank.

    Args:
        first: The number of the first step.
        last: The number of the step before which it ends.
        load_from: The folder of a checkpoint to begin with. None: begin
            with new weights.
        save_to: The folder for a checkpoint at the end. None: save none.

    Returns:
        All parameters, flat and on the CPU.
    """
    device = rank_device()
    rank = dist.get_rank()
    net = sharded(small_blocks(), device)
    optimizer = adam(list(net.parameters()))
    if load_from is not None:
        load(net, optimizer, load_from)
    for step in range(first, last):
        X, y = (x.chunk(dist.get_world_size())[rank] for x in batch(step))
        optimizer.zero_grad()
        loss = F.mse_loss(net(X.to(device)), y.to(device))
        torch.autograd.backward(loss)
        optimizer.step()
    if save_to is not None:
        save(net, optimizer, save_to)
    return whole(net)


def whole(net: nn.Module) -> Tensor:
    """Return the parameters of all ranks, flat and on the CPU."""
    shards: list[Any] = list(net.parameters())  # DTensors
    params = [shard.full_tensor() for shard in shards]
    return torch.cat([p.detach().cpu().flatten() for p in params])


def train_by_hand(
    engine: Engine, num_devices: int, first: int, last: int
) -> list[Tensor]:
    """Take the same steps by our engine; return parameters by device.

    Args:
        engine: A class of ``dpkit.sharding``, such as ``Zero3``.
        num_devices: How many devices share the shards.
        first: The number of the first step.
        last: The number of the step before which it ends.

    Returns:
        What each device has in the end: all parameters, flat and on the CPU.
    """
    ranks = devices(num_devices)
    parallel = engine(small_blocks(), ranks, adam)
    for step in range(first, last):
        parallel.zero_grad()
        parallel.forward_backward(*batch(step), nn.MSELoss())
        parallel.step()
    if isinstance(parallel, Zero3):
        for block in parallel.blocks:
            block.gather()
    wholes = zip(*(block.wholes for block in parallel.blocks))
    return [torch.cat([w.cpu() for w in found]) for found in wholes]


def unmoved_in_16_bits(masters: bool, num_steps: int = 20) -> float:
    """Return the share of parameters that small steps leave as they were.

    Forward and backward are in bfloat16. With ``masters`` the shards are in
    float32, and without in bfloat16.
    """
    half = torch.bfloat16
    dtype = torch.float32 if masters else half
    blocks = [block.to(dtype) for block in small_blocks()]
    parallel = Zero3(blocks, devices(3), sgd, dtype=half)
    shards = [shard for block in parallel.blocks for shard in block.shards]
    before = [shard.clone() for shard in shards]
    for step in range(num_steps):
        X, y = (x.to(half) for x in batch(step))
        parallel.zero_grad()
        parallel.forward_backward(X, y, nn.MSELoss())
        parallel.step()
    same = [float((a == b).sum()) for a, b in zip(before, shards)]
    return sum(same) / sum(map(len, shards))


def sgd(params: list[Tensor]) -> torch.optim.Optimizer:
    """Return gradient descent in small steps."""
    return torch.optim.SGD(params, lr=1e-3)


def train_on_one_device(first: int, last: int) -> Tensor:
    """Take the same steps on one device; return parameters as from a rank."""
    (device,) = devices(1)
    net = nn.Sequential(*small_blocks()).to(device)
    optimizer = adam(list(net.parameters()))
    for step in range(first, last):
        X, y = (x.to(device) for x in batch(step))
        optimizer.zero_grad()
        torch.autograd.backward(F.mse_loss(net(X), y))
        optimizer.step()
    return torch.cat([p.detach().cpu().flatten() for p in net.parameters()])


def save(
    net: nn.Module, optimizer: torch.optim.Optimizer, folder: str | Path
) -> None:
    """Save the shards of all ranks, each its own."""
    # Here, not above: they take a second.
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save as write

    ours, theirs = get_state_dict(net, optimizer)
    write({"net": ours, "adam": theirs}, checkpoint_id=folder)


def load(
    net: nn.Module, optimizer: torch.optim.Optimizer, folder: str | Path
) -> None:
    """Load what any number of ranks saved, each its own part."""
    from torch.distributed.checkpoint.state_dict import (
        get_state_dict,
        set_state_dict,
    )
    from torch.distributed.checkpoint.state_dict_loader import load as read

    ours, theirs = get_state_dict(net, optimizer)
    read({"net": ours, "adam": theirs}, checkpoint_id=folder)
    set_state_dict(
        net, optimizer, model_state_dict=ours, optim_state_dict=theirs
    )
