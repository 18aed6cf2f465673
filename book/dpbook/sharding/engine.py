"""The same step by PyTorch's ``fully_shard``, on the same devices."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.engine_pairs import traced
from dpbook.sharding.runs import WATCHED, Step, adam, dense_blocks
from dpkit import sim, synchronize
from dpkit.runs import launch


def sharded(
    blocks: list[nn.Module], device: torch.device, **how: Any
) -> nn.Module:
    """Return a network on a device, sharded by PyTorch block by block.

    Each rank of a process group calls it. ``how`` is passed on to
    ``fully_shard``.
    """
    # Here, not above: they take a second.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    net = nn.Sequential(*blocks).to(device)
    for block in net:
        fully_shard(block, mesh=mesh, **how)
    fully_shard(net, mesh=mesh, **how)
    return net


def fsdp_step(
    rows: int = 1024,
    width: int = 1024,
    count: int = 6,
    num_devices: int = 4,
    batches: int = 1,
    sync_each: bool = True,
    how: dict[str, Any] | None = None,
    **machine: Any,
) -> Step:
    """Take two steps by ``fully_shard``, and return the second.

    Args:
        rows: The examples of each batch, on each device.
        width: The values that go into each block and come out of it.
        count: How many blocks there are.
        num_devices: How many devices share the shards.
        batches: Those of a step, whose gradients add up.
        sync_each: Whether the gradients of each batch are sent. If not, only
            those of the last are, to which the others have been added.
        how: What ``fully_shard`` takes, by name.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    with sim.machine(**{"backing": "meta", "hosts": "per_device", **machine}):
        syncs = [sync_each] * (batches - 1) + [True]
        found: list[Step] = launch(
            _train, num_devices, (rows, width, count), syncs, how or {}
        )
    return found[torch.device(WATCHED).index]


def _train(
    sizes: tuple[int, int, int], syncs: list[bool], how: dict[str, Any]
) -> Step:
    """Train on one rank; return the second step."""
    rows, width, count = sizes
    device = torch.device("sim", dist.get_rank())
    with device:
        X = torch.zeros(rows, width)
        net = sharded(dense_blocks(width, count), device, **how)
    optimizer = adam(list(net.parameters()))
    _step(net, X, optimizer, [True])  # of one batch
    return _step(net, X, optimizer, syncs)


def _step(
    net: Any, X: Tensor, optimizer: torch.optim.Optimizer, syncs: list[bool]
) -> Step:
    """Take a step; the trace that one rank begins shows all."""
    module = torch.get_device_module("sim")
    found: list[Any] = []

    def step() -> None:
        start = sim.now(X.device)
        for sync in syncs:
            net.set_requires_gradient_sync(sync)
            torch.autograd.backward(F.mse_loss(net(X), X))
        synchronize([X.device])
        seconds = sim.now(X.device) - start
        found[:] = seconds, module.max_memory_allocated(X.device)
        optimizer.step()

    optimizer.zero_grad()
    module.reset_peak_memory_stats(X.device)
    timeline = traced(step, on=torch.device(WATCHED).index)
    kept = module.memory_allocated(X.device) - X.nbytes
    seconds, peak = found
    return Step(timeline, seconds=seconds, peak=peak, kept=kept)
