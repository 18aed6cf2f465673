"""Cut a network into stages that take about the same time.

What layers cost is timed, one by one; the stages are cut so that the most
costly one costs as little as can be::

    layer      0   1   2   3   4
    seconds    3   1   2   4   2
    stages    [3   1   2] [4   2]      6 and 6
"""

import copy
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpkit.machine import Timer
from dpkit.theory.pipelines.balance import balance
from dpkit.theory.units import check_whole


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

    @property
    def seconds(self) -> float:
        """Seconds of both passes."""
        return self.forward_seconds + self.backward_seconds


def layer_seconds(
    model: nn.Sequential, x: Tensor, device: torch.device
) -> list[LayerCost]:
    """Time each layer by itself, forward and backward, on one device.

    On a simulated device the seconds are simulated, on another measured. Each
    layer runs twice, and the second time counts: its gradients are then added
    to others, as in a pipeline. The model stays where and as it is.

    Args:
        model: The layers; one may pass a tuple of tensors on to the next.
        x: A micro-batch, shape (b, …). If it requires no gradient, the first
            layer makes none of it, as in the first stage of a pipeline.
        device: Where to run them.

    Example:
        >>> model = nn.Sequential(nn.Linear(600, 4000), nn.Linear(4000, 10))
        >>> (device,) = dpkit.devices(1, kind="sim")
        >>> costs = layer_seconds(model, torch.zeros(500, 600), device)
        >>> [f"{cost.seconds:.1e}" for cost in costs]
        ['4.3e-04', '7.5e-05']
    """
    found = []
    needs_gradient = x.requires_grad
    given: tuple[Tensor, ...] = (x.detach().to(device),)
    is_tuple = False
    for layer in model:
        layer = copy.deepcopy(layer).to(device)
        for _ in range(2):  # the first to warm up
            leaves = [_leaf(x, needs_gradient) for x in given]
            clones = tuple(x.clone() for x in leaves)  # may be overwritten
            with Timer([device]) as forward:
                made = layer(clones if is_tuple else clones[0])
            outputs = made if isinstance(made, tuple) else (made,)
            roots = [y for y in outputs if y.requires_grad]
            gradients = [torch.ones_like(y) for y in roots]
            with Timer([device]) as backward:
                if roots:
                    torch.autograd.backward(roots, gradients)
        num_bytes = sum(y.nbytes for y in outputs)
        found.append(LayerCost(forward.seconds, backward.seconds, num_bytes))
        given, is_tuple = outputs, isinstance(made, tuple)
        needs_gradient = True
    return found


def _leaf(x: Tensor, needs_gradient: bool) -> Tensor:
    return x.detach().requires_grad_(needs_gradient and x.is_floating_point())


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
            :func:`dpkit.network_partition.layer_seconds` finds. The most
            costly stage costs as little as can be. None: the parameters.
        sizes: How many layers each stage has, by hand, in place of costs.

    Raises:
        TypeError: the model is not an ``nn.Sequential``, or a number is not
            whole.
        ValueError: there are fewer layers than stages, not one cost a layer,
            the sizes do not add up, or both are given.

    Example:
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
    fit = (len(sizes), sum(sizes)) == (num_stages, len(model))
    if not fit or min(sizes, default=0) < 1:
        raise ValueError(
            "the sizes do not cut the layers into stages (layers: "
            f"{len(model)}, stages: {num_stages}, sizes: {list(sizes)})"
        )
    # Sizes 3 1 2: they end at 3, 4 and 6, so layers 0:3, 3:4 and 4:6.
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
