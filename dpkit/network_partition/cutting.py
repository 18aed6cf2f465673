"""Cut a network into stages that take about the same time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from torch import nn

from dpkit.network_partition.timing import LayerCost
from dpkit.theory.pipelines.balance import balance
from dpkit.theory.units import check_whole


def split_layers(
    model: nn.Sequential,
    num_stages: int,
    costs: Sequence[float | LayerCost] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[nn.Sequential]:
    """Cut a network into stages, each with a few layers that follow on.

    The stages hold the layers themselves, not copies.

    Args:
        model: The layers.
        num_stages: How many stages.
        costs: A number for each layer, or what
            :func:`dpkit.network_partition.layer_seconds` finds. The stages
            are cut so that the most costly one costs as little as can be.
            None: the parameters.
        sizes: How many layers each stage has, by hand, in place of costs.

    Returns:
        The stages, in order.

    Raises:
        TypeError: the model is not an ``nn.Sequential``, or a number is not
            whole.
        ValueError: there are fewer layers than stages, not one cost a layer,
            the sizes do not add up, or both are given.

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
    check_whole("num_stages", num_stages)
    for size in sizes or ():
        check_whole("sizes", size)
    if sizes is not None and costs is not None:
        raise ValueError(
            "stages are cut by costs or by hand, not both (costs: "
            f"{list(costs)}, sizes: {list(sizes)})"
        )
    if sizes is None:
        sizes = _balanced(model, num_stages, costs)
    if (
        len(sizes) != num_stages
        or sum(sizes) != len(model)
        or min(sizes, default=0) < 1
    ):
        raise ValueError(
            "the sizes do not cut the layers into stages (layers: "
            f"{len(model)}, stages: {num_stages}, sizes: {list(sizes)})"
        )
    ends = list(accumulate(sizes))
    return [model[end - size : end] for size, end in zip(sizes, ends)]


def _balanced(
    model: nn.Sequential,
    num_stages: int,
    costs: Sequence[float | LayerCost] | None,
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
    numbers = [c.seconds if isinstance(c, LayerCost) else c for c in costs]
    return balance(numbers, num_stages)
