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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils._pytree import tree_leaves, tree_map

from dpkit.arguments import check_kind, check_tensor, device_list
from dpkit.machine import Timer
from dpkit.schedules.balance import balance
from dpkit.units import check_whole


class LayerCost(NamedTuple):
    """What a layer takes for a micro-batch, and the bytes it passes on.

    Example:
        >>> from dpkit.network_partition import LayerCost
        >>> LayerCost(0.25, 0.5, num_bytes=4000).seconds
        0.75
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
    layer runs twice, and the second time counts. The model stays where and as
    it is. A layer may pass a tuple of tensors on to the next; one that it only
    carries costs nothing. ``x`` is a micro-batch, shape (b, …); the first
    layer makes its gradient if it requires one.

    Example:
        >>> from dpkit.network_partition import layer_seconds
        >>> model = nn.Sequential(nn.Linear(600, 4000), nn.Linear(4000, 10))
        >>> (device,) = dpkit.devices(1, kind="sim")
        >>> costs = layer_seconds(model, torch.zeros(500, 600), device)
        >>> [f"{cost.seconds:.1e}" for cost in costs]
        ['4.3e-04', '7.5e-05']
    """
    check_kind("model", model, nn.Sequential)
    check_tensor(x)
    (device,) = device_list([device])
    found = []
    given = x.to(device)
    for layer in model:
        layer = copy.deepcopy(layer).to(device)
        for _ in range(2):  # the first to warm up
            cost, made = _timed(layer, given)
        found.append(cost)
        given = made
    return found


class _Border(Function):
    """What comes into a layer: its gradient is made, and kept by nobody.

    A leaf would keep it, in a copy where the layer passes it on as it is: the
    time of the copy would count, which the network never makes.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return a clone, because a layer may overwrite what it is given."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> None:
        """Give no gradient to what came before: backward ends here."""


def _timed(layer: nn.Module, given: Any) -> tuple[LayerCost, Any]:
    """Run a layer on a tensor or a tuple; return what it took and made."""

    def come_in(x: Tensor) -> Any:
        return _Border.apply(x.detach().requires_grad_(x.requires_grad))

    inputs = tree_map(come_in, given)
    devices = [x.device for x in tree_leaves(inputs)]
    with Timer(devices) as forward:
        made = layer(inputs)
    outputs = tree_leaves(made)
    roots = [y for y in outputs if y.requires_grad]
    gradients = [torch.ones_like(y) for y in roots]
    with Timer(devices) as backward:
        if roots:
            torch.autograd.backward(roots, gradients)
    num_bytes = sum(y.nbytes for y in outputs)
    return LayerCost(forward.seconds, backward.seconds, num_bytes), made


def split_layers(
    model: nn.Sequential,
    num_stages: int,
    costs: Sequence[float | LayerCost] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[nn.Sequential]:
    """Cut a network into stages, each with a few layers that follow on.

    Args:
        model: The layers; the stages hold them, not copies.
        num_stages: At most one for each layer.
        costs: A number for each layer, or what
            :func:`dpkit.network_partition.layer_seconds` finds. The most
            costly stage costs as little as can be. None: the parameters.
        sizes: How many layers each stage has, by hand, in place of costs.

    Raises:
        TypeError: the model is not an ``nn.Sequential``.
        ValueError: costs or sizes do not fit the layers and stages.

    Example:
        >>> model = nn.Sequential(
        ...     nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 5), nn.Linear(5, 2)
        ... )
        >>> [len(stage) for stage in dpkit.split_layers(model, 2)]
        [2, 2]
        >>> [len(s) for s in dpkit.split_layers(model, 2, sizes=[3, 1])]
        [3, 1]
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(
            f"not a sequence of layers (type: {type(model).__name__}); "
            "nn.Sequential(…) makes one"
        )
    check_whole("num_stages", num_stages)
    if sizes is None:
        sizes = _balanced(model, num_stages, costs)
    elif costs is not None:
        raise ValueError(
            "stages are cut by costs or by hand, not both (costs: "
            f"{list(costs)}, sizes: {list(sizes)})"
        )
    check_kind("sizes", sizes, Sequence)
    for size in sizes:
        check_whole("sizes", size)
    fit = (len(sizes), sum(sizes)) == (num_stages, len(model))
    if not fit or min(sizes, default=0) < 1:
        raise ValueError(
            "the sizes do not cut the layers into stages (layers: "
            f"{len(model)}, stages: {num_stages}, sizes: {list(sizes)})"
        )
    # Sizes 3 1 2: they end at 3, 4 and 6, so layers 0:3, 3:4 and 4:6.
    ends = accumulate(sizes)
    return [model[end - size : end] for size, end in zip(sizes, ends)]


def _balanced(
    model: nn.Sequential,
    num_stages: int,
    costs: Sequence[float | LayerCost] | None,
) -> list[int]:
    if costs is not None and not hasattr(costs, "__len__"):
        raise TypeError(f"not a list of costs (costs: {costs!r})")
    if costs is None:
        costs = [sum(p.numel() for p in la.parameters()) for la in model]
    if len(costs) != len(model):
        raise ValueError(
            f"each layer needs one cost (layers: {len(model)}, costs: "
            f"{len(costs)})"
        )
    if not 1 <= num_stages <= len(model):
        raise ValueError(
            "cannot cut so many layers into so many stages (layers: "
            f"{len(model)}, stages: {num_stages})"
        )
    numbers = [c.seconds if isinstance(c, LayerCost) else c for c in costs]
    return balance(numbers, num_stages)
