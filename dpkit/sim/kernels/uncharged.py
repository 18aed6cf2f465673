"""What costs nothing on the clock, for the buffers of collectives."""

import torch
from torch import Tensor

from dpkit.sim.devices.configuration import simulation
from dpkit.sim.kernels.without_values import copy_without_values
from dpkit.sim.memory.small_integers import (
    deepcopy_backing,
    has_values,
    keep_any,
    values_of,
)
from dpkit.sim.tensors.behaviour import plain
from dpkit.sim.tensors.tensor import SimTensor


def scratch(like: Tensor, size: int) -> Tensor:
    """Return a flat tensor of ``size`` elements, made at no cost.

    It has the dtype and the device of another.
    """
    backing = torch.empty(size, dtype=like.dtype, device=plain(like).device)
    if backing.is_meta:
        keep_any(backing)
    on_sim = like.device.type == "sim"
    return SimTensor(backing, like.device) if on_sim else backing


def to_overwrite(out: Tensor, given: Tensor) -> Tensor:
    """Return ``out``, flat, all of which a collective will write to.

    Where small integers have lost their values, they have any until then, if
    what this rank gives has some.
    """
    if has_values(plain(given)) and not has_values(plain(out)):
        keep_any(plain(out))
    return out.view(-1)


def put(given: Tensor, out: Tensor, *, to: int = 0, first: int = 0) -> None:
    """Copy values from one tensor to another of its device, at no cost.

    Args:
        given: What is copied, as if it were flat.
        out: Where the values go; it is contiguous.
        to: The place in ``out`` of the first value that is copied.
        first: The place of that value in ``given``. What does not fit into
            ``out`` from there on is not copied.
    """
    source = plain(given)
    target = plain(out).view(-1)[to:]
    if target.is_meta:
        _put_without_values(source, target, first)
        return
    source = source.reshape(-1)[first:]
    count = min(source.numel(), target.numel())
    if source.data_ptr() != target.data_ptr():
        target[:count].copy_(source[:count])
        if simulation.races is not None and out.device.type == "sim":
            simulation.races.used(
                "copy",
                out.device.index,
                reads=[source[:count]],
                writes=[target[:count]],
            )


def _put_without_values(source: Tensor, target: Tensor, first: int) -> None:
    known = values_of(source)
    source = (source if known is None else known).reshape(-1)[first:]
    count = min(source.numel(), target.numel())
    copy_without_values(source[:count], target[:count])


def copy_to(device: torch.device, x: Tensor) -> Tensor:
    """Return a copy of a tensor on a device of its kind."""
    backing = deepcopy_backing(plain(x).detach(), {})
    return SimTensor(backing, device) if device.type == "sim" else backing


def multiply(x: Tensor, factor: float) -> None:
    """Multiply in place, at no cost, where there are values."""
    known = values_of(plain(x))
    if known is not None:
        known.mul_(factor)


def reduce_equal(x: Tensor, count: int, op: str) -> None:
    """Reduce so many tensors that are equal to one of them, in place.

    ``op`` is "sum", "mean" (divided elsewhere), "product", "max" or "min".
    """
    known = values_of(plain(x))
    if known is None or known.dtype == torch.bool or op in ("max", "min"):
        return
    # A sum of bytes starts again after 255, however many terms there are.
    whole = not (known.is_floating_point() or known.is_complex())
    wide = known.long() if whole else known
    known.copy_(wide**count if op == "product" else wide * count)
