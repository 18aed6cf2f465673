"""Bugs of replicas and shards."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from dpkit.data_parallel.step import gradient, sgd
from dpkit.lab.museum.exhibit import Devices, Exhibit, Version, claim
from dpkit.lab.museum.parity import (
    Replicas,
    compare_steps,
    line,
    squares,
    step_of_all,
)
from dpkit.machine import devices
from dpkit.placement import replicate, scatter, split_batch


def moved(params: Sequence[Tensor], devices: Devices) -> Replicas:
    """Move the parameters to each device, where they may be already."""
    return [
        [p.to(device).requires_grad_() for p in params] for device in devices
    ]


def storage_of_each(version: Version) -> None:
    """Make three replicas on one device: no two may share memory."""
    (device,) = devices(1)
    replicas = version([torch.ones(2, device=device)], [device] * 3)
    step = step_of(replicas)
    for (r, (one,)), (s, (other,)) in combinations(enumerate(replicas), 2):
        claim(
            one.untyped_storage() != other.untyped_storage(),
            f"replicas {r} and {s} share their memory (a step, where 1 is "
            f"right: {step:.2f})",
        )


def devices_that_differ(version: Version) -> None:
    """Make three replicas on three devices, and take a step."""
    step = step_of(version([torch.ones(2)], devices(3, "sim")))
    claim(abs(step - 1) < 1e-6, f"a step is too large (step: {step:.2f})")


def step_of(replicas: Replicas) -> float:
    """Return the step against a gradient of ones, 1/k of it on each.

    Gradients are added up by hand: ``allreduce`` refuses shared memory.
    """
    params = [param for (param,) in replicas]
    before = params[0].tolist()[0]
    torch.autograd.backward([p.sum() / len(params) for p in params])
    first, *others = [gradient(p) for p in params]
    for grad in others:
        first += grad.to(first.device)
    for grad in others:
        grad.copy_(first)
    with torch.no_grad():
        for p in params:
            p -= gradient(p)
            gradient(p).zero_()
    return float(before - params[0].tolist()[0])


def step_without_allreduce(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step on each device, with the gradient of its shard."""
    X_shards, y_shards = split_batch(X, y, devices)
    for X_shard, y_shard, params in zip(X_shards, y_shards, device_params):
        squares(line(X_shard, params), y_shard).sum().backward()
        sgd(params, lr, batch_size=len(X))


def parity_on_three(version: Version) -> None:
    """Compare a step on three devices with that of one."""
    parity(version, devices(3))


def parity(version: Version, devices: Devices) -> None:
    """Compare a step with that of one device; refuse to do so on one."""
    k = len(devices)
    claim(k > 1, f"one device proves nothing (devices: {k})")
    compare_steps(version, k, rows=7)


def parity_on_what_there_is(version: Version) -> None:
    """Compare a step on all the devices of a machine that has one."""
    compare_steps(version, len(devices(1)), rows=7)


def by_chunk(x: Tensor, devices: Devices) -> list[Tensor]:
    """Give each device a chunk of the rows."""
    chunks = x.chunk(len(devices))
    return [c.to(d, copy=True) for c, d in zip(chunks, devices)]


def every_number_of_rows(version: Version) -> None:
    """Scatter 1 to 9 rows over four devices: four shards, all rows."""
    for rows in range(1, 10):
        check_shards(version, rows)


def eight_rows(version: Version) -> None:
    """Scatter 8 rows over four devices."""
    check_shards(version, 8)


def check_shards(version: Version, rows: int) -> None:
    """Claim that there is a shard for each of four devices, and all rows."""
    ranks, x = devices(4), torch.arange(2.0 * rows).view(rows, 2)
    shards = version(x, ranks)
    claim(
        len(shards) == len(ranks),
        f"not a shard for each device (rows: {rows}, devices: {len(ranks)}, "
        f"shards: {len(shards)})",
    )
    together = torch.cat([shard.cpu() for shard in shards])
    claim(torch.equal(together, x), f"rows are lost (rows: {rows})")


# fmt: off
EXHIBITS = [
    Exhibit("aliases", moved, replicate, storage_of_each, devices_that_differ),
    Exhibit("one device", step_without_allreduce, step_of_all,
            parity_on_three, parity_on_what_there_is),
    Exhibit("chunk", by_chunk, scatter, every_number_of_rows, eight_rows),
]
# fmt: on
