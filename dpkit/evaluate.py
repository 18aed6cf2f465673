"""Accuracy on a test set, with every device at work."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dpkit.arguments import (
    Devices,
    check_function,
    check_lists,
    check_scores,
    device_list,
)
from dpkit.data_parallel import DataParallel, DistributedDataParallel
from dpkit.placement import split_batch

Batch = tuple[Tensor, Tensor]
WRAPPERS = (
    DataParallel,
    DistributedDataParallel,
    nn.DataParallel,
    nn.parallel.DistributedDataParallel,
)


@torch.no_grad()
def evaluate_accuracy(
    net: Callable[..., Tensor],
    batches: Iterable[Batch],
    devices: Devices,
    device_params: Sequence[Sequence[Tensor]] | None = None,
) -> float:
    """Return the fraction of examples whose largest output is their label.

    Each batch is split over all devices. Their counts of correct answers are
    added and divided once, so shards of unequal size weigh as many examples
    as they have: the result is the same for every k.

    Args:
        net: A module: copies of it run on the devices, in evaluation mode. A
            wrapper for data parallelism stands for the module within. A
            module that lies on several devices already, such as a pipeline,
            runs where it is. With ``device_params``, a function
            ``net(X, params)``. Each gives scores, shape (rows, classes).
        batches: Pairs of examples, shape (b, …), and labels, shape (b,).
        devices: k devices.
        device_params: ``device_params[r]`` are the parameters on
            ``devices[r]``, if ``net`` is a function.

    Raises:
        ValueError: there are no examples; the shapes of scores and labels do
            not fit; a label is no class, from 0 to classes − 1; or scores are
            NaN.

    Example:
        >>> X, y = torch.eye(5), torch.tensor([0, 1, 2, 3, 0])
        >>> dpkit.evaluate_accuracy(
        ...     nn.Identity(), [(X, y)], dpkit.devices(3, kind="sim")
        ... )
        0.8
    """
    devices = device_list(devices)
    nets = _net_on_each(net, devices, device_params)
    devices = devices[: len(nets)]
    counts = [torch.zeros(3, dtype=torch.int64, device=d) for d in devices]
    num_examples = 0
    for X, y in batches:
        X_shards, y_shards = split_batch(X, y, devices)
        for rank, (X_shard, y_shard) in enumerate(zip(X_shards, y_shards)):
            if len(X_shard):
                scores = nets[rank](X_shard)
                check_scores(scores, y_shard)
                counts[rank] += counted(scores, y_shard)
        num_examples += len(y)
    if num_examples == 0:
        raise ValueError("no examples to evaluate on (examples: 0)")
    # Reading counts waits for their device, so it is done once, at the end.
    return _share_of_right(sum(count.cpu() for count in counts), num_examples)


def counted(scores: Tensor, y: Tensor) -> Tensor:
    """Return how many answers are right, have NaN, or a label of no class.

    The three numbers lie where the scores are, shape (rows, classes).
    """
    right = scores.argmax(dim=1) == y
    without_number = scores.isnan().any(dim=1)
    no_class = (y < 0) | (y >= scores.shape[1])
    return torch.stack([right, without_number, no_class]).sum(dim=1)


def _share_of_right(counts: Tensor | int, num_examples: int) -> float:
    """Return the share of right answers; raise if some cannot be right."""
    correct, without_number, no_class = torch.as_tensor(counts).tolist()
    if no_class:
        raise ValueError(
            "a label is not the number of a class, from 0 to classes - 1 "
            f"(such labels: {no_class}, examples: {num_examples})"
        )
    if without_number:
        raise ValueError(
            "the network gives NaN, and no class has the largest score "
            f"(examples with NaN: {without_number}, examples: {num_examples})"
        )
    return float(correct / num_examples)


def _net_on_each(
    net: Callable[..., Tensor],
    devices: Devices,
    device_params: Sequence[Sequence[Tensor]] | None,
) -> list[Callable[[Tensor], Any]]:
    """Return one function of the examples alone for each device."""
    check_function("net", net)
    while isinstance(net, WRAPPERS):
        net = net.module
    if isinstance(net, nn.Module):
        if device_params is not None:
            raise ValueError(
                "a module brings its own parameters (lists of device_params: "
                f"{len(device_params)})"
            )
        if len({p.device for p in net.parameters()}) > 1:
            return [partial(_where_it_is, net, devices[0])]
        return [copy.deepcopy(net).to(d).eval() for d in devices]
    if device_params is None:
        return [net] * len(devices)
    check_lists(device_params, devices)
    return [partial(_with_params, net, params) for params in device_params]


def _with_params(
    net: Callable[..., Tensor], params: Sequence[Tensor], X: Tensor
) -> Tensor:
    return net(X, params)


def _where_it_is(net: nn.Module, device: torch.device, X: Tensor) -> Tensor:
    """Run a module in evaluation mode, and leave its modes as they were."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        scores: Tensor = net(X)
    finally:
        for module, training in modes:
            module.training = training
    return scores.to(device)
