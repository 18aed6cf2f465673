"""Time the layers of a network, one by one."""

from __future__ import annotations

import copy
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

    @property
    def seconds(self) -> float:
        """Seconds of both passes."""
        return self.forward_seconds + self.backward_seconds


def layer_seconds(
    model: nn.Sequential, x: Tensor, device: torch.device
) -> list[LayerCost]:
    """Time each layer by itself, forward and backward, on one device.

    On a simulated device the seconds are simulated, on another measured. What
    is timed is the second time that a layer runs, its gradients added to
    those of the first, as they are to those of other micro-batches. The model
    stays where and as it is.

    Args:
        model: The layers; one may pass a tuple of tensors on to the next.
        x: A micro-batch, shape (b, …). If it requires no gradient, the first
            layer makes none of it, as in the first stage of a pipeline.
        device: Where to run them.

    Example:
        >>> import dpkit, torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(600, 4000), nn.Linear(4000, 10))
        >>> (device,) = dpkit.devices(1, kind="sim")
        >>> costs = layer_seconds(model, torch.zeros(500, 600), device)
        >>> [f"{cost.seconds:.1e}" for cost in costs]
        ['4.3e-04', '7.5e-05']
    """
    found = []
    needs_gradient = x.requires_grad
    given: Any = x.detach().to(device)
    for layer in model:
        layer = copy.deepcopy(layer).to(device)
        for _ in range(2):  # the first to warm up
            given = _leaves(given, needs_gradient)
            received = _clones(given)  # for layers that work in place
            with Timer([device]) as forward:
                made = layer(received)
            roots = [y for y in _tensors(made) if y.requires_grad]
            gradients = [torch.ones_like(y) for y in roots]
            with Timer([device]) as backward:
                if roots:
                    torch.autograd.backward(roots, gradients)
        num_bytes = sum(y.nbytes for y in _tensors(made))
        found.append(LayerCost(forward.seconds, backward.seconds, num_bytes))
        given, needs_gradient = made, True
    return found


def _tensors(given: Any) -> tuple[Tensor, ...]:
    return given if isinstance(given, tuple) else (given,)


def _clones(given: Any) -> Any:
    if isinstance(given, tuple):
        return tuple(x.clone() for x in given)
    return given.clone()


def _leaves(given: Any, needs_gradient: bool) -> Any:
    """Return a tensor, or a tuple of tensors, without a graph."""
    cut = [
        x.detach().requires_grad_(needs_gradient and x.is_floating_point())
        for x in _tensors(given)
    ]
    return tuple(cut) if isinstance(given, tuple) else cut[0]
