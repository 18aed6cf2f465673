"""Bugs of sums and means: of losses, and so of gradients."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.museum.exhibit import Devices, Exhibit, Version, claim
from dpbook.museum.replicas import (
    LR,
    Replicas,
    compare_steps,
    flat,
    line,
    squares,
    step_of_all,
    task,
)
from dpkit import Pipeline, devices, replicate, split_batch, split_layers
from dpkit.data_parallel import (
    allreduce_gradients,
    clear_gradients,
    gradient,
    sgd,
)

FULL_BATCH = 6


def backward_of_means(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices
) -> None:
    """Give each replica the gradient of the mean loss of its shard.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
    """
    X_shards, y_shards = split_batch(X, y, devices)
    for X_shard, y_shard, params in zip(X_shards, y_shards, device_params):
        squares(line(X_shard, params), y_shard).mean().backward()


def step_of_sums(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step with the sum of the gradients of mean losses.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate.
    """
    backward_of_means(X, y, device_params, devices)
    allreduce_gradients(device_params)
    for params in device_params:
        sgd(params, lr, batch_size=1)


def step_of_means(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step with the mean of the gradients of mean losses.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate.
    """
    backward_of_means(X, y, device_params, devices)
    allreduce_gradients(device_params)
    for params in device_params:
        sgd(params, lr, batch_size=len(devices))


def step_of_full_batches(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step with sums, divided by the rows of a full batch.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate.
    """
    for X_shard, y_shard, params in zip(
        *split_batch(X, y, devices), device_params
    ):
        squares(line(X_shard, params), y_shard).sum().backward()
    allreduce_gradients(device_params)
    for params in device_params:
        sgd(params, lr, batch_size=FULL_BATCH)


def step_of_shared(
    X: Tensor, y: Tensor, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """Take a step with the mean of the gradients of one program's losses.

    Args:
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b, …).
        device_params: The parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate.
    """
    program, *others = device_params
    for X_shard, y_shard in zip(*split_batch(X, y, devices)):
        here = [p.to(X_shard.device) for p in program]
        squares(line(X_shard, here), y_shard).mean().backward()
    for params in others:
        for p, shared in zip(params, program):
            p.grad = gradient(shared).to(p.device, copy=True)
    allreduce_gradients(device_params)
    for params in device_params:
        sgd(params, lr, batch_size=len(devices))


def five_rows_on_three(version: Version) -> None:
    """Compare a step on three devices with that of one, 5 rows."""
    compare_steps(version, 3, rows=5)


def six_rows_on_one(version: Version) -> None:
    """Compare a step by all the code, on one device, with PyTorch's."""
    compare_steps(version, 1, rows=6)


def six_rows_on_three(version: Version) -> None:
    """Compare a step on three devices with that of one, 6 rows."""
    compare_steps(version, 3, rows=6)


def seven_rows_on_three(version: Version) -> None:
    """Compare a step on three devices with that of one, 7 rows."""
    compare_steps(version, 3, rows=7)


def loss_falls(version: Version) -> None:
    """Take five steps; the loss is smaller afterwards."""
    X, y, params = task(6)
    ranks = devices(3)
    replicas = replicate(params, ranks)
    before = squares(line(X, params), y).mean()
    for _ in range(5):
        clear_gradients(replicas)
        version(X, y, replicas, ranks, LR / 20)
    own = [p.detach().cpu() for p in replicas[0]]
    after = squares(line(X, own), y).mean()
    claim(bool(after < before), f"the loss grows ({before:.3g}, {after:.3g})")


def sum_of_means(model: nn.Sequential, X: Tensor, y: Tensor, m: int) -> None:
    """Add up the gradients of m micro-batches, each of a mean loss.

    Args:
        model: It is given the gradients.
        X: The examples, shape (b, …).
        y: Their labels, shape (b,).
        m: How many micro-batches there are.
    """
    for part, labels in zip(X.tensor_split(m), y.tensor_split(m)):
        F.cross_entropy(model(part), labels).backward()


def pipelined(model: nn.Sequential, X: Tensor, y: Tensor, m: int) -> None:
    """Leave the gradients of a batch, by a pipeline of two stages.

    Args:
        model: It is given the gradients.
        X: The examples, shape (b, …).
        y: Their labels, shape (b,).
        m: How many micro-batches there are.
    """
    stages = split_layers(model, 2)
    pipeline = Pipeline(stages, devices(2), num_micro_batches=m)
    pipeline.forward_backward(X, y, F.cross_entropy)


def gradients_of_the_batch(version: Version) -> None:
    """Compare the gradients of four micro-batches with those of one batch."""
    found = _gradients(version)
    wanted = _gradients(_whole_batch)
    ratio = found.norm() / wanted.norm()
    case = f"micro-batches: 4, lengths: {ratio:.2f} to 1"
    fact = f"the gradients are not those of the batch ({case})"
    claim(torch.allclose(found, wanted, rtol=1e-9), fact)


def step_of_adam(version: Version) -> None:
    """Compare the parameters after a step of Adam."""
    found = _adam(_gradients(version))
    wanted = _adam(_gradients(_whole_batch))
    claim(torch.allclose(found, wanted, atol=1e-5), "Adam takes another step")


def _whole_batch(model: nn.Sequential, X: Tensor, y: Tensor, m: int) -> None:
    F.cross_entropy(model(X), y).backward()


def _gradients(version: Version) -> Tensor:
    """Return all gradients of a small network, in one vector."""
    torch.manual_seed(0)
    layers = nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)
    model = nn.Sequential(*layers).double()
    X = torch.randn(8, 5).double()
    y = torch.arange(8) % 3
    version(model, X, y, 4)
    return flat([p.grad for p in model.parameters() if p.grad is not None])


def _adam(gradient: Tensor) -> Tensor:
    p = nn.Parameter(torch.zeros_like(gradient))
    p.grad = gradient
    torch.optim.Adam([p], lr=0.1).step()
    return p.detach()


EXHIBITS = [
    Exhibit(
        "sum of means",
        wrong=step_of_sums,
        right=step_of_all,
        check=six_rows_on_three,
        careless=loss_falls,
    ),
    Exhibit(
        "mean of means",
        wrong=step_of_means,
        right=step_of_all,
        check=seven_rows_on_three,
        careless=six_rows_on_three,
    ),
    Exhibit(
        "full batch",
        wrong=step_of_full_batches,
        right=step_of_all,
        check=five_rows_on_three,
        careless=six_rows_on_three,
    ),
    Exhibit(
        "summed already",
        wrong=step_of_shared,
        right=step_of_all,
        check=six_rows_on_three,
        careless=six_rows_on_one,
    ),
    Exhibit(
        "loss not divided",
        wrong=sum_of_means,
        right=pipelined,
        check=gradients_of_the_batch,
        careless=step_of_adam,
    ),
]
