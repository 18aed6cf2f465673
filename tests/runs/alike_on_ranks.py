"""Programs in which all ranks do the same, on a machine without numbers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import (
    all_to_all_single_autograd,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

import dpkit
from tests.runs.engines_on_ranks import PLAN, WIDTH, Block


def blocks(count=2):
    with torch.device("sim"):
        layers = [Block() for _ in range(count)]
        return nn.Sequential(*layers).double()


def mesh_of(*shape):
    size = dist.get_world_size()
    names = ("outer", "inner")[-len(shape) - 1 :]
    return init_device_mesh(
        "sim", (*shape, size // max(1, *shape, 1)), mesh_dim_names=names
    )


def train(model, steps=2):
    """Return what there is in memory, and the time, after some steps."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = torch.ones(4, 5, WIDTH, device="sim", dtype=torch.float64)
    for _ in range(steps):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.sim.synchronize()
    peak = torch.sim.max_memory_allocated()
    return torch.sim.memory_allocated(), peak, dpkit.sim.now()


def ddp():
    return train(DistributedDataParallel(blocks(), bucket_cap_mb=0.01))


def sharded(model, **settings):
    for block in model:
        fully_shard(block, **settings)
    return fully_shard(model, **settings)


def fsdp():
    return train(sharded(blocks(), mesh=mesh_of()))


def fsdp_mixed():
    """The gradients are averaged as a sum with a factor."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    return train(sharded(blocks(), mesh=mesh_of(), mp_policy=policy))


def fsdp_hybrid():
    """Two replicas, each sharded."""
    return train(sharded(blocks(), mesh=mesh_of(2)))


def tensor_parallel():
    model, mesh = blocks(1), mesh_of()
    for block in model:
        parallelize_module(block, mesh, PLAN)
    return train(model)


def both():
    """Layers are split over two ranks, and the pieces sharded over others."""
    mesh = mesh_of(dist.get_world_size() // 2)
    model = blocks()
    for block in model:
        parallelize_module(block, mesh["inner"], PLAN)
    return train(sharded(model, mesh=mesh["outer"]))


class Experts(nn.Module):
    """Rows go to the experts of all ranks, and come back."""

    def __init__(self):
        super().__init__()
        self.expert = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        rows = x.flatten(0, 1).repeat(dist.get_world_size(), 1)
        group = dist.group.WORLD
        there = all_to_all_single_autograd(rows, None, None, group)
        done = self.expert(there)
        return all_to_all_single_autograd(done, None, None, group)


def experts():
    with torch.device("sim"):
        model = Experts().double()
    return train(DistributedDataParallel(model))


PROGRAMS = [ddp, fsdp, tensor_parallel, experts]
ON_FOUR = [fsdp_mixed, fsdp_hybrid, both]  # ranks, or twice as many
