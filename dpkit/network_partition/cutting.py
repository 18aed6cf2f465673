"""Cut a network into stages that take about the same time."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from dpkit.machine import Timer
from dpkit.theory.balance import balance


def split_layers(
    model: nn.Sequential,
    num_stages: int,
    costs: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[nn.Sequential]:
    """Cut a network into stages, each with a few layers that follow on.

    The stages hold the layers themselves, not copies.

    Args:
        model: The layers.
        num_stages: How many stages.
        costs: A number for each layer, such as the seconds that
            :func:`dpkit.network_partition.layer_seconds` finds. The stages
            are cut so that the most costly one costs as little as can be.
            None: the parameters.
        sizes: How many layers each stage has, by hand, in place of costs.

    Returns:
        The stages, in order.

    Raises:
        TypeError: the model is not an ``nn.Sequential``.
        ValueError: there are fewer layers than stages, not one cost a layer,
            or the sizes do not add up.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(
        ...     nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 5), nn.Linear(5, 2)
        ... )
        >>> [len(stage) for stage in split_layers(model, 2)]
        [2, 2]
        >>> [len(stage) for stage in split_layers(model, 2, sizes=[3, 1])]
        [3, 1]
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(
            f"not a sequence of layers (type: {type(model).__name__}); "
            "nn.Sequential(…) makes one"
        )
    if sizes is None:
        sizes = _balanced(model, num_stages, costs)
    if len(sizes) != num_stages or sum(sizes) != len(model) or 0 in sizes:
        raise ValueError(
            "the sizes do not cut the layers into stages (layers: "
            f"{len(model)}, stages: {num_stages}, sizes: {list(sizes)})"
        )
    ends = list(accumulate(sizes))
    return [model[end - size : end] for size, end in zip(sizes, ends)]


def _balanced(
    model: nn.Sequential, num_stages: int, costs: Sequence[float] | None
) -> list[int]:
    if costs is None:
        costs = [sum(p.numel() for p in la.parameters()) for la in model]
    if len(costs) != len(model):
        raise ValueError(
            f"there is not one cost a layer (layers: {len(model)}, costs: "
            f"{len(costs)})"
        )
    if not 1 <= num_stages <= len(model):
        raise ValueError(
            "cannot cut so many layers into so many stages (layers: "
            f"{len(model)}, stages: {num_stages})"
        )
    return balance(costs, num_stages)


def layer_seconds(
    model: nn.Sequential, x: Tensor, device: torch.device
) -> list[tuple[float, float]]:
    """Time each layer, forward and backward, on one device.

    On a simulated device the seconds are simulated, on another measured, the
    second time that the layer runs. The model stays where and as it is.

    Args:
        model: The layers.
        x: A micro-batch, shape (b, …).
        device: Where to run them.

    Returns:
        Seconds forward and seconds backward of each layer.

    Example:
        >>> import dpkit, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(600, 4000), nn.Linear(4000, 10))
        >>> (device,) = dpkit.devices(1, kind="sim")
        >>> seconds = layer_seconds(model, torch.zeros(500, 600), device)
        >>> [f"{forward + backward:.1e}" for forward, backward in seconds]
        ['6.0e-04', '7.5e-05']
    """
    found = []
    x = x.to(device)
    for layer in copy.deepcopy(model):
        layer.to(device)
        for _ in range(2):  # the first to warm up
            x = x.detach().requires_grad_(x.is_floating_point())
            with Timer([device]) as forward:
                y = layer(x)
            gradient = torch.ones_like(y)
            with Timer([device]) as backward:
                torch.autograd.backward(y, gradient)
        found.append((forward.seconds, backward.seconds))
        x = y
    return found
