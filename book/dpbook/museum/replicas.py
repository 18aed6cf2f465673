"""Bugs of replicas and shards: a step on k devices, and one on one device."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from dpbook.museum.exhibit import Devices, Exhibit, Version, claim
from dpkit import devices, replicate, scatter, split_batch, train_batch
from dpkit.data_parallel import gradient, sgd

Replicas = Sequence[Sequence[Tensor]]
LR = 0.1


def task(rows: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Draw X, y and first parameters in float64; later rows are larger."""
    generator = torch.Generator().manual_seed(rows)
    X = torch.randn(rows, 4, generator=generator).double()
    X *= torch.arange(1, rows + 1)[:, None]
    y = X.sum(dim=1, keepdim=True) + 1
    return X, y, [torch.zeros(4, 1).double(), torch.zeros(1).double()]


def line(X: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return what the linear regression predicts, shape (rows, 1)."""
    w, b = params
    return X @ w + b


def squares(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each example, shape (rows,)."""
    return (outputs - y).square().sum(dim=1) / 2


def step_of_all(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step with the sum over all examples, divided once.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate.
    """
    train_batch(line, squares, X, y, device_params, devices, lr=lr)


def step_of_one(X: Tensor, y: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return the step of plain PyTorch, all parameters in one vector."""
    own = [p.clone().requires_grad_() for p in params]
    torch.autograd.backward(squares(line(X, own), y).mean())
    torch.optim.SGD(own, LR).step()
    return flat(own) - flat(params)


def flat(params: Sequence[Tensor]) -> Tensor:
    """Return all values of the parameters in one vector, on the CPU."""
    return torch.cat([p.detach().cpu().flatten() for p in params])


def compare_steps(version: Version, k: int, rows: int) -> None:
    """Claim that every replica takes the step that one device takes."""
    X, y, params = task(rows)
    ranks = devices(k)
    replicas = replicate(params, ranks)
    version(X, y, replicas, ranks, LR)
    wanted = step_of_one(X, y, params)
    for rank, replica in enumerate(replicas):
        found = flat(replica) - flat(params)
        ratio = found.norm() / wanted.norm()
        case = f"devices: {k}, rows: {rows}, lengths: {ratio:.2f} to 1"
        fact = f"rank {rank} takes another step than one device ({case})"
        claim(torch.allclose(found, wanted, rtol=1e-10), fact)


def moved(params: Sequence[Tensor], devices: Devices) -> Replicas:
    """Move the parameters to each device."""
    return [[p.to(d).requires_grad_() for p in params] for d in devices]


def storage_of_each(version: Version) -> None:
    """Make three replicas on one device: no two may share memory."""
    (device,) = devices(1)
    replicas = version([torch.ones(2, device=device)], [device] * 3)
    step = step_of(replicas)
    for (r, (one,)), (s, (other,)) in combinations(enumerate(replicas), 2):
        found = f"a step, where 1 is right: {step:.2f}"
        fact = f"replicas {r} and {s} share their memory ({found})"
        claim(one.untyped_storage() != other.untyped_storage(), fact)


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
    """Take a step on each device, with the gradient of its shard.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate.
    """
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
    ranks = devices(4)
    x = torch.arange(2.0 * rows).view(rows, 2)
    shards = version(x, ranks)
    found = f"rows: {rows}, devices: {len(ranks)}, shards: {len(shards)}"
    fact = f"not a shard for each device ({found})"
    claim(len(shards) == len(ranks), fact)
    together = torch.cat([shard.cpu() for shard in shards])
    claim(torch.equal(together, x), f"rows are lost (rows: {rows})")


EXHIBITS = [
    Exhibit(
        "aliases",
        wrong=moved,
        right=replicate,
        check=storage_of_each,
        careless=devices_that_differ,
    ),
    Exhibit(
        "one device",
        wrong=step_without_allreduce,
        right=step_of_all,
        check=parity_on_three,
        careless=parity_on_what_there_is,
    ),
    Exhibit(
        "chunk",
        wrong=by_chunk,
        right=scatter,
        check=every_number_of_rows,
        careless=eight_rows,
    ),
]
