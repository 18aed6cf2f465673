"""The programs of two processes, each with its own GPU."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from in_turns import Seconds, time_in_turns
from torch import Tensor, nn
from torch.nn import functional as F

import dpkit
from dpbook.common.resnet import resnet18
from dpkit.data_parallel import DistributedDataParallel
from dpkit.processes import rank_device
from gpu_report_parts.nets import small_net, trained


def backend(devices: Sequence[torch.device]) -> str:
    """Return what processes that each have one of the devices talk by."""
    return "nccl" if devices[0].type == "cuda" else "gloo"


def numbers() -> tuple[list[Tensor], list[Tensor]]:
    """Train by hand and by PyTorch; return what each ends with.

    The network has no batch norm: of the buffers PyTorch sends more.
    """
    device = rank_device()
    rank = dist.get_rank()

    def mine(rows: Tensor) -> Tensor:
        return rows.tensor_split(dist.get_world_size())[rank]

    ours = DistributedDataParallel(small_net(norm=False).to(device))
    theirs = nn.parallel.DistributedDataParallel(
        small_net(norm=False).to(device)
    )
    nets = (ours, theirs)
    found = [trained(net, device, mine) for net in nets]
    return found[0], found[1]


def wait() -> None:
    """Wait for the GPU of this rank, then for the other rank."""
    dpkit.synchronize([rank_device()])
    dist.barrier()


def allreduce_seconds(count: int) -> Seconds:
    """Return what torch's all_reduce of ``count`` floats takes."""
    x = torch.ones(count, device=rank_device())
    ways = {dist.get_backend(): lambda: dist.all_reduce(x)}
    return time_in_turns(ways, wait=wait)


def step_seconds(num_rows: int, num_steps: int = 1) -> Seconds:
    """Return what a step of ResNet-18 takes, by PyTorch and by hand."""
    device = rank_device()
    X = torch.randn(num_rows, 1, 28, 28, device=device)
    y = torch.randint(10, (num_rows,), device=device)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()

    theirs = nn.parallel.DistributedDataParallel(resnet18().to(device))
    ours = DistributedDataParallel(resnet18().to(device))
    ways = {
        name: partial(step, net, torch.optim.SGD(net.parameters(), 0.01))
        for name, net in (("PyTorch's", theirs), ("by hand", ours))
    }
    return time_in_turns(ways, num_steps, wait)
