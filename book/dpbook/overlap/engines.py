"""A step of data parallelism by our engine and by PyTorch's, simulated."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from dpbook.common.engine_pairs import (
    Pair,
    Step,
    on_cpu,
    pair_of,
    traced,
    traced_here,
)
from dpbook.network_partitioning.runs import deep_network
from dpkit import devices, split_batch
from dpkit.data_parallel import BucketedDataParallel
from dpkit.runs import launch


def torch_step(net: nn.Module, X: Tensor, y: Tensor, views: bool) -> Step:
    """Train a rank's part of a batch by PyTorch's engine; trace a step.

    Args:
        net: The same on each rank.
        X: The whole batch, shape (b, …).
        y: What it should give, shape (b, …).
        views: Whether gradients are views of the buckets:
            ``gradient_as_bucket_view``.
    """
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    device = torch.device("sim", rank)
    own_X = X.tensor_split(world_size)[rank].to(device)
    own_y = y.tensor_split(world_size)[rank].to(device)
    parallel = DistributedDataParallel(
        net.to(device), gradient_as_bucket_view=views
    )

    def step() -> None:
        F.mse_loss(parallel(own_X), own_y).backward()

    for _ in range(2):  # it learns the order of the gradients, and uses it
        step()
        parallel.zero_grad()
    timeline = traced(step)
    return Step(timeline, on_cpu(net.parameters()))


def our_step(net: nn.Module, X: Tensor, y: Tensor, world_size: int) -> Step:
    """Train a batch by our engine, and trace a step.

    Args:
        net: It is copied to each device.
        X: The whole batch, shape (b, …).
        y: What it should give, shape (b, …).
        world_size: The number of devices.
    """
    ranks = devices(world_size, "sim")
    parallel = BucketedDataParallel(net, ranks)
    shards = list(zip(*split_batch(X, y, ranks)))

    def step() -> None:
        replicas = zip(parallel.replicas, shards)
        parallel.backward([F.mse_loss(net(a), b) for net, (a, b) in replicas])

    step()
    for replica in parallel.replicas:
        replica.zero_grad()
    timeline = traced_here(step, ranks)
    return Step(timeline, on_cpu(parallel.replicas[0].parameters()))


def data_parallel_pair(
    views: bool = False, world_size: int = 4, width: int = 1024, **machine: Any
) -> Pair:
    """Trace the step of twelve dense layers by both, 64 rows for a device.

    Each has taken steps before.

    Args:
        views: Whether PyTorch's engine leaves the gradients in its buckets, as
            ours does.
        world_size: The number of devices.
        width: The values that go into each layer and come out of it.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """

    def both(width: int) -> tuple[Step, Step]:
        torch.manual_seed(0)
        net = deep_network(width, depth=12)
        X, y = torch.randn(2, 64 * world_size, width)
        ours = our_step(net, X, y, world_size)
        theirs, *_ = launch(torch_step, world_size, net, X, y, views)
        return ours, theirs

    names = "data parallel", "views" if views else "", machine.get("link", "")
    return pair_of(", ".join(filter(None, names)), both, width, machine)
