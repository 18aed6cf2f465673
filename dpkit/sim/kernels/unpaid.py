"""What costs nothing on the clock, for the buffers of collectives."""

import torch
from torch import Tensor

from dpkit.sim.behaviour import plain
from dpkit.sim.configuration import simulation
from dpkit.sim.kernels.without_numbers import copy_without_numbers
from dpkit.sim.small_integers import has_numbers, keep_any, numbers_of
from dpkit.sim.tensor import SimTensor


def scratch(like: Tensor, size: int) -> Tensor:
    """Return a flat tensor where another is; it costs nothing to make."""
    backing = torch.empty(size, dtype=like.dtype, device=plain(like).device)
    if backing.is_meta:
        keep_any(backing)
    on_sim = like.device.type == "sim"
    return SimTensor(backing, like.device) if on_sim else backing


def to_overwrite(out: Tensor, given: Tensor) -> Tensor:
    """Return ``out``, flat, all of which a collective will write to.

    Where small integers have lost their numbers, they have any until then, if
    what this rank gives has some.
    """
    if has_numbers(plain(given)) and not has_numbers(plain(out)):
        keep_any(plain(out))
    return out.view(-1)


def put(given: Tensor, out: Tensor, to: int = 0, first: int = 0) -> None:
    """Copy numbers, from the ``first`` on, to place ``to`` on, at no cost.

    Both tensors lie on one device.
    """
    source, target = plain(given), plain(out).view(-1)[to:]
    if target.is_meta:
        _put_without_numbers(source, target, first)
        return
    source = source.reshape(-1)[first:]
    count = min(source.numel(), target.numel())
    if source.data_ptr() != target.data_ptr():
        target[:count].copy_(source[:count])
        if simulation.races is not None and out.device.type == "sim":
            pieces = [source[:count]], [target[:count]]
            simulation.races.used("copy", out.device.index, *pieces)


def _put_without_numbers(source: Tensor, target: Tensor, first: int) -> None:
    known = numbers_of(source)
    source = (source if known is None else known).reshape(-1)[first:]
    count = min(source.numel(), target.numel())
    copy_without_numbers(source[:count], target[:count])


def multiply(x: Tensor, factor: float) -> None:
    """Multiply in place, at no cost, where there are numbers."""
    known = numbers_of(plain(x))
    if known is not None:
        known.mul_(factor)


def divide_towards_zero(x: Tensor, count: int) -> None:
    """Divide integers in place, at no cost: -7 / 2 becomes -3."""
    known = numbers_of(plain(x))
    if known is not None:
        known.div_(count, rounding_mode="trunc")
