"""The seconds of a layer of a large transformer, on simulated A100s.

The devices have shapes and times but no numbers. ``transformer_layer`` has
the layer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpkit import sim
from dpkit.machine import Timer, devices
from dpkit.units import check_known
from recorders.trust.transformer_layer import (
    DTYPE,
    SEQUENCE,
    Shape,
    again,
    replicas_layer,
    rows_layer,
    split_parts,
)

ON: Any = {"accelerator": "a100", "link": "nvlink3", "hosts": "per_device"}
RECOMPUTE = ("none", "selective", "full")


class Passes(NamedTuple):
    """The seconds of a forward and of a backward pass."""

    forward: float
    backward: float


def layer_seconds(
    shape: Shape,
    recompute: str = "none",
    fused: bool = False,
    by_rows: bool = False,
    accumulates: bool = False,
) -> Passes:
    """Return the simulated seconds of a layer.

    Args:
        shape: The size of the layer.
        recompute: What backward computes again: "none"; "selective", the
            scores and all that attention makes of them; "full", the layer.
        fused: Whether attention is one kernel.
        by_rows: Whether norms, dropout and residuals are sequence parallel.
        accumulates: Whether backward adds to gradients that are there, as it
            does from the second micro-batch on.

    Example:
        >>> from recorders.trust.transformer import Shape, layer_seconds
        >>> shape = Shape(heads=4, hidden=256, micro_batch=1, num_devices=2)
        >>> none, full = (layer_seconds(shape, r) for r in ("none", "full"))
        >>> none.backward < full.backward
        True
    """
    check_known("recompute", recompute, RECOMPUTE)
    with simulated(shape) as owners:
        heads, mlp = split_parts(shape, owners, fused, recompute)
        join = rows_layer if by_rows else replicas_layer
        layer = join(shape, owners, heads, mlp)

        def run(*xs: Tensor) -> Sequence[Tensor]:
            return tuple(layer(xs))

        size = [shape.micro_batch, SEQUENCE, shape.hidden]
        if by_rows:
            size = [size[0] * size[1] // shape.num_devices, size[2]]
        xs = [torch.empty(size, dtype=DTYPE, device=d) for d in owners]
        if recompute != "full":
            return pass_seconds(run, xs, accumulates)
        return pass_seconds(lambda *xs: again(run, *xs), xs, accumulates)


@contextmanager
def simulated(shape: Shape) -> Iterator[list[torch.device]]:
    """Simulate the devices that have a layer, in a block."""
    count = shape.num_devices
    with sim.machine(num_devices=count, backing="meta", **ON):
        yield devices(count, kind="sim")


def pass_seconds(
    run: Callable[..., Sequence[Tensor]],
    xs: Sequence[Tensor],
    accumulates: bool,
) -> Passes:
    """Return the seconds of a pass forward, and of one backward.

    ``run`` takes a tensor on each device and gives one on each.
    """
    owners = [x.device for x in xs]
    # Backward leaves gradients of the parameters, to which a second adds.
    for _ in range(2 if accumulates else 1):
        inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in xs]
        with Timer(owners) as forward:
            ys = run(*inputs)
        gradients = [torch.empty_like(y) for y in ys]
        with Timer(owners) as backward:
            torch.autograd.backward(list(ys), gradients)
    return Passes(forward.seconds, backward.seconds)
