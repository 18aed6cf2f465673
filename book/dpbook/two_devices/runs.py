"""A step of ResNet-18, and an epoch whose images lie on the device."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.batches import Batches
from dpbook.common.datasets import Labelled
from dpbook.common.graph_launches import record_launches
from dpbook.common.models import lenet
from dpkit import Timer, allreduce, split_batch, train_batch


def train_step(
    nets: Sequence[nn.Module],
    X: Tensor,
    y: Tensor,
    devices: Sequence[torch.device],
    lr: float = 0.1,
) -> None:
    """Take one step of SGD on all devices together, with a net on each.

    Batch norm takes each shard by itself, so that this is not exactly the step
    of one device.

    Args:
        nets: One replica on each device.
        X: The examples of the batch, shape (b, …).
        y: Their labels, shape (b,).
        devices: As many as there are nets, in the same order.
        lr: The learning rate, for the mean of the gradients.
    """
    shards = zip(*split_batch(X, y, devices))
    losses = [
        F.cross_entropy(net(X), y, reduction="sum")
        for net, (X, y) in zip(nets, shards)
    ]
    torch.autograd.backward(losses)
    for copies in zip(*(net.parameters() for net in nets)):
        grads = [p.grad for p in copies if p.grad is not None]
        allreduce(grads, algorithm="star")
    # Allreduce leaves the gradient of the sum over the batch. With 512 rows
    # a rate of 0.1 for their mean is a rate of 0.1 / 512 for their sum.
    for net in nets:
        optimizer = torch.optim.SGD(net.parameters(), lr / len(X))
        optimizer.step()
        optimizer.zero_grad()


def time_resident_epoch(
    images: Labelled,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    lr: float = 0.2,
    batch_size: int = 256,
) -> Timer:
    """Train LeNet for one epoch on images that lie on the first device.

    They are copied there before the time begins. From then on the host sends
    an order of rows, once, and launches operations.

    Args:
        images: The training set, with n images of shape (1, 28, 28).
        device_params: LeNet's parameters, a list for each device.
        devices: The devices of the parameters, in their order.
        lr: The learning rate, for the mean of the gradients.
        batch_size: The examples of a step, over all devices together.

    Returns:
        A timer that has stopped.
    """
    X, y = (tensor.to(devices[0]) for tensor in images)
    loss = nn.CrossEntropyLoss(reduction="none")
    batches = Batches(X, y, batch_size, shuffle=True)
    with Timer(devices) as timer:
        for X, y in batches:
            train_batch(
                lenet,
                loss,
                X,
                y,
                device_params,
                devices,
                lr=lr,
                algorithm="star",
            )
    return timer


def time_graphed_epoch(
    images: Labelled,
    params: Sequence[Tensor],
    device: torch.device,
    lr: float = 0.2,
    batch_size: int = 256,
) -> Timer:
    """Train LeNet for one epoch, each whole batch by a CUDA graph of the step.

    The images are copied to the device before the time begins. One step with
    the first batch is taken then, too, and its launches are recorded. A last
    batch that is not whole is launched operation by operation.

    Args:
        images: The training set, with n images of shape (1, 28, 28).
        params: LeNet's parameters, on ``device``.
        device: A GPU, or a simulated device.
        lr: The learning rate, for the mean of the gradients.
        batch_size: The examples of a step.

    Returns:
        A timer that has stopped.
    """
    X, y = (tensor.to(device) for tensor in images)
    loss = nn.CrossEntropyLoss(reduction="none")
    batch = X[:batch_size].clone(), y[:batch_size].clone()

    def step(X: Tensor, y: Tensor) -> None:
        train_batch(lenet, loss, X, y, [params], [device], lr=lr)

    replay = record_launches(lambda: step(*batch), device)
    with Timer([device]) as timer:
        order = torch.randperm(len(X)).to(device)
        for rows in order.split(batch_size):
            if len(rows) < batch_size:
                step(X[rows], y[rows])
                continue
            for source, target in zip((X, y), batch):
                torch.index_select(source, 0, rows, out=target)
            replay()
    return timer
