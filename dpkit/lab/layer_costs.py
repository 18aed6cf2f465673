"""The seconds of each layer of a network, to be added up to stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dpkit.machine import Timer


class LayerCost(NamedTuple):
    """What a layer takes for one micro-batch.

    Attributes:
        forward_seconds: Seconds of its forward pass.
        backward_seconds: Seconds of its backward pass.
        num_bytes: What it passes on to the next layer.
    """

    forward_seconds: float
    backward_seconds: float
    num_bytes: int


def layer_seconds(
    layers: nn.Sequential, X: Tensor, device: torch.device
) -> list[LayerCost]:
    """Time each layer by itself, forward and backward.

    The device is waited for before and after, so that each time includes the
    issuing of its first operation. Gradients are added to zeros, as they are
    added to those of other micro-batches.

    Args:
        layers: The layers, on the device; a layer takes and gives a tensor or
            a tuple of tensors, and has parameters.
        X: The micro-batch, on the device too.
        device: Where; on a simulated one the seconds are its clock's.

    Example:
        >>> import dpkit, torch
        >>> (device,) = dpkit.devices(1, kind="sim")
        >>> layers = torch.nn.Sequential(torch.nn.Linear(5, 7)).to(device)
        >>> X = torch.zeros(3, 5, device=device)
        >>> [cost] = layer_seconds(layers, X, device)
        >>> cost.num_bytes  # 3 rows of 7 numbers of 4 bytes
        84
    """
    costs: list[LayerCost] = []
    given: Any = X
    for parameter in layers.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for layer in layers:
        given = _without_history(given, requires_grad=bool(costs))
        with Timer([device]) as forward:
            given = layer(given)
        made = [x for x in _tensors(given) if x.requires_grad]
        gradients = [torch.empty_like(x) for x in made]
        with Timer([device]) as backward:
            torch.autograd.backward(made, gradients)
        num_bytes = sum(x.nbytes for x in _tensors(given))
        costs.append(LayerCost(forward.seconds, backward.seconds, num_bytes))
    return costs


def to_record(costs: Sequence[LayerCost]) -> dict[str, list[float]]:
    """Return costs as columns, for a JSON file.

    Example:
        >>> to_record([LayerCost(0.5, 1.5, 84)])["backward_seconds"]
        [1.5]
    """
    columns = zip(*costs, strict=True)
    return {k: list(c) for k, c in zip(LayerCost._fields, columns)}


def from_record(record: Mapping[str, Sequence[Any]]) -> list[LayerCost]:
    """Return the costs that :func:`to_record` made columns of.

    Example:
        >>> from_record(to_record([LayerCost(0.5, 1.5, 84)]))
        [LayerCost(forward_seconds=0.5, backward_seconds=1.5, num_bytes=84)]
    """
    columns = [record[name] for name in LayerCost._fields]
    return [LayerCost(*row) for row in zip(*columns, strict=True)]


def _tensors(given: Any) -> tuple[Tensor, ...]:
    return given if isinstance(given, tuple) else (given,)


def _without_history(given: Any, requires_grad: bool) -> Any:
    """Return a tensor or tuple of tensors, cut off from what made it."""
    cut = [x.detach().requires_grad_(requires_grad) for x in _tensors(given)]
    return tuple(cut) if isinstance(given, tuple) else cut[0]
