"""Data parallelism: every device has all parameters and a shard of the batch.

One step on three devices::

    X, y ──split──▶ rank 0: X0 ─▶ loss 0 ─▶ gradient 0 ┐
                    rank 1: X1 ─▶ loss 1 ─▶ gradient 1 ┼─allreduce─▶ their sum
                    rank 2: X2 ─▶ loss 2 ─▶ gradient 2 ┘
                    every rank: params -= lr / b * sum

The sum over shards of sums over examples is the sum over the batch, so the
step is the one that a single device takes.
"""

import inspect
from collections.abc import Callable, Sequence
from math import isfinite

import torch
from torch import Tensor, nn

from dpkit.arguments import (
    Devices,
    check_lists,
    check_tensor,
    device_list,
    tensor_list,
)
from dpkit.collectives import allreduce, planned_allreduce
from dpkit.losses import Loss, check_sum, tried_as_sum
from dpkit.placement import split_batch
from dpkit.units import check_count, check_number


def train_batch(
    net: Callable[[Tensor, Sequence[Tensor]], Tensor],
    loss: Loss,
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Devices,
    lr: float,
    algorithm: str = "ring",
) -> None:
    """Take one step of minibatch SGD on all devices together.

    Gradients are summed over examples and devices, stay in ``p.grad``, and
    are divided once by the size of the whole batch. That is the step of one
    device if the loss of an example depends on that example alone; with batch
    norm it does not. A device whose shard is empty contributes zeros.

    Args:
        net: ``net(X, params)`` gives the outputs, shape (rows, …).
        loss: ``loss(outputs, y)`` gives the loss of each example, or their
            sum; not their mean, which is checked on the first batch, when no
            parameter has a gradient yet.
        X: Examples, shape (b, …), on any device.
        y: Labels, shape (b, …).
        device_params: ``device_params[r]`` are the parameters on
            ``devices[r]``, as :func:`dpkit.replicate` makes them.
        devices: k devices.
        lr: The learning rate.
        algorithm: That of the allreduces, as for :func:`dpkit.allreduce`.

    Raises:
        TypeError: the network is a module that takes examples alone.
        ValueError: the batch is empty, ``X`` and ``y`` differ in length, the
            loss is a mean, or the learning rate is not finite.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> params = dpkit.replicate([torch.zeros(1)], devices)
        >>> X, y = torch.ones(3, 1), torch.tensor([[1.0], [2.0], [6.0]])
        >>> dpkit.train_batch(
        ...     net=lambda X, params: X * params[0],
        ...     loss=lambda outputs, y: (outputs - y) ** 2 / 2,
        ...     X=X, y=y, device_params=params, devices=devices, lr=1.0,
        ... )
        >>> params[1][0]  # one step from 0 to the mean label
        tensor([3.], device='sim:1', requires_grad=True)
    """
    _check_step(net, X, device_params, devices, lr, algorithm)
    loss = _checked(loss, device_params)
    X_shards, y_shards = split_batch(X, y, devices)
    clear_gradients(device_params)
    losses = [
        loss(net(X_shard, params), y_shard).sum()
        for X_shard, y_shard, params in zip(X_shards, y_shards, device_params)
        if len(X_shard)
    ]
    # One call for all: on GPUs, each device's backward has its own thread.
    torch.autograd.backward(losses)
    allreduce_gradients(device_params, algorithm)
    for params in device_params:
        sgd(params, lr, batch_size=len(X))


def allreduce_gradients(
    device_params: Sequence[Sequence[Tensor]], algorithm: str = "ring"
) -> None:
    """Replace each gradient by its sum over all devices; none counts as 0.

    Args:
        device_params: ``device_params[r]`` are the parameters on
            ``devices[r]``, as :func:`dpkit.replicate` makes them.
        algorithm: That of the allreduces, as for :func:`dpkit.allreduce`.
    """
    for copies in zip(*device_params, strict=True):
        allreduce([gradient(p) for p in copies], algorithm=algorithm)


def gradient(p: Tensor) -> Tensor:
    """Return the gradient of ``p``, zeros if backward gave it none."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    return p.grad


def clear_gradients(device_params: Sequence[Sequence[Tensor]]) -> None:
    """Forget the gradients of the step before."""
    for params in device_params:
        for p in params:
            p.grad = None


@torch.no_grad()
def sgd(params: Sequence[Tensor], lr: float, batch_size: int) -> None:
    """Take a step of SGD, in place, with gradients that are sums.

    Args:
        params: The parameters of one device; one without a gradient stays.
        lr: The learning rate.
        batch_size: How many examples the gradients are summed over, on all
            devices together. They are divided by it.
    """
    _check_sgd(params, lr, batch_size)
    # A sum over 6 examples, on whichever devices, is 6 times their mean.
    for p in params:
        if p.grad is not None:
            p -= lr * p.grad / batch_size


def _check_step(
    net: Callable[..., Tensor],
    X: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Devices,
    lr: float,
    algorithm: str,
) -> None:
    _check_net(net)
    check_tensor(X)
    if X.dim() and len(X) == 0:
        raise ValueError(
            f"the batch has no examples (shape of X: {tuple(X.shape)})"
        )
    devices = device_list(devices, least=1)
    check_lists(device_params, devices)
    planned_allreduce(algorithm, len(devices))
    _check_rate(lr)
    params = [p for params in device_params for p in tensor_list(params)]
    if not any(p.requires_grad for p in params):
        raise ValueError(
            f"no parameter requires a gradient (parameters: {len(params)}); "
            "replicate() makes copies that do"
        )


def _check_net(net: Callable[..., Tensor]) -> None:
    """Raise TypeError for a module that can take no list of parameters."""
    if not isinstance(net, nn.Module):
        return
    try:
        signature = inspect.signature(net.forward)
    except ValueError:  # a module that was compiled has none
        return
    try:
        signature.bind("X", "params")
    except TypeError:
        raise TypeError(
            "the network is a module, not a function of examples and "
            f"parameters (type: {type(net).__name__}); dpkit.DataParallel "
            "takes modules, which an optimizer trains"
        ) from None


def _check_rate(lr: float) -> None:
    check_number("lr", lr)
    if not isfinite(lr):
        raise ValueError(
            f"the learning rate is not a finite number (lr: {lr})"
        )
    if lr < 0:
        raise ValueError(
            f"the learning rate is negative, and would climb (lr: {lr})"
        )


def _check_sgd(params: Sequence[Tensor], lr: float, batch_size: int) -> None:
    _check_rate(lr)
    check_count("batch_size", batch_size)
    tensor_list(params)


def _checked(loss: Loss, device_params: Sequence[Sequence[Tensor]]) -> Loss:
    """Return the loss, which is no mean; on the first batch it is tried."""
    check_sum(loss)
    first = all(p.grad is None for params in device_params for p in params)
    return tried_as_sum(loss) if first else loss
