"""What costs nothing on the clock, for the buffers of collectives."""

import torch
from torch import Tensor

from dpkit.sim.behaviour import plain
from dpkit.sim.configuration import simulation
from dpkit.sim.tensor import SimTensor


def scratch(like: Tensor, size: int) -> Tensor:
    """Return a flat tensor where another is; it costs nothing to make."""
    backing = torch.empty(size, dtype=like.dtype, device=plain(like).device)
    on_sim = like.device.type == "sim"
    return SimTensor(backing, like.device) if on_sim else backing


def put(given: Tensor, out: Tensor, to: int = 0, first: int = 0) -> None:
    """Copy numbers, from the ``first`` on, to place ``to`` on, at no cost.

    Both tensors lie on one device.
    """
    source, target = plain(given).reshape(-1)[first:], plain(out).view(-1)[to:]
    count = min(source.numel(), target.numel())
    if source.data_ptr() != target.data_ptr():
        target[:count].copy_(source[:count])
        if simulation.races is not None and out.device.type == "sim":
            pieces = [source[:count]], [target[:count]]
            simulation.races.used("copy", out.device.index, *pieces)


def multiply(x: Tensor, factor: float) -> None:
    """Multiply in place, at no cost."""
    plain(x).mul_(factor)


def divide_towards_zero(x: Tensor, count: int) -> None:
    """Divide integers in place, at no cost: -7 / 2 becomes -3."""
    plain(x).div_(count, rounding_mode="trunc")
