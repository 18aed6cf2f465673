"""Charge the clock for what ran: an operation, a copy, a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim import work
from dpkit.sim.configuration import simulation
from dpkit.sim.pinned import is_pinned
from dpkit.theory.hardware.costs import copy_seconds, operation_seconds

aten = torch.ops.aten


def await_arrivals(inputs: Sequence[Tensor], device: int) -> None:
    """Let autograd's thread of ``device`` wait for what others send it."""
    clock = simulation.clock
    for tensor in inputs:
        arrival = getattr(tensor, "arrival", None)
        if arrival is not None and arrival[0] is clock:
            clock.await_thread(device, arrival[1])


def charge(
    func: OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    inputs: Sequence[Tensor],
    out: Any,
    device: int,
) -> None:
    """Charge for an operation that ran on one device.

    Args:
        func: The operation.
        args: What it was given.
        kwargs: The same, by name.
        inputs: The tensors in both.
        out: What came out.
        device: The number of the device.
    """
    clock = simulation.clock
    cluster = clock.cluster
    name = work.base_name(func)
    if clock.in_backward:
        await_arrivals(inputs, device)
    if not work.launches_kernel(func):
        clock.busy(device, name, cluster.host.view_seconds)
        return
    flops = work.flops(func, args, kwargs, out)
    written = args[0] if out is None else out  # a list, in place
    num_bytes = work.num_bytes(func, inputs, written)
    dtype = work.compute_dtype(func, inputs[0]) if flops else "float32"
    seconds = operation_seconds(cluster.accelerator, flops, num_bytes, dtype)
    launches = work.num_launches(func, args)
    clock.compute(device, name, seconds, num_bytes, flops, launches)
    if work.host_waits(func, args):
        clock.wait(device, clock.current[device])


def charge_copies(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any
) -> None:
    """Charge for an operation that copies, maybe between devices.

    Args:
        func: One of the operations in ``COPIES``.
        args: What it was given.
        kwargs: The same, by name.
        out: What came out.
    """
    non_blocking = kwargs.get("non_blocking", False)
    if func is aten._to_copy.default:
        pairs = [(args[0], out)]
    elif func is aten.copy_.default:
        pairs, non_blocking = [(args[1], args[0])], _third(args, non_blocking)
    else:
        pairs = list(zip(args[1], args[0]))
        non_blocking = _third(args, non_blocking)
    for source, target in pairs:
        if source.device == target.device:
            index = target.device.index
            charge(func, args, kwargs, (source,), target, index)
        else:
            copied(source, target, bool(non_blocking))


def _third(args: Sequence[Any], otherwise: Any) -> Any:
    return args[2] if len(args) > 2 else otherwise


def copied(source: Tensor, target: Tensor, non_blocking: bool) -> None:
    """Charge for a copy from one tensor to another, on another device."""
    clock = simulation.clock
    cluster = clock.cluster
    ends = (_number(source), _number(target))
    pageable, limit = False, float("inf")
    if None in ends:
        pageable = not is_pinned(source if ends[0] is None else target)
        if pageable:
            limit = cluster.host.pageable_bytes_per_second
    link = cluster.link_between(*ends)
    seconds = copy_seconds(link, target.nbytes, at_most=limit)
    if clock.in_backward and ends[0] is not None:
        await_arrivals([source], ends[0])
    blocking = None in ends and (pageable or not non_blocking)
    issued = clock.copy(ends[0], ends[1], seconds, target.nbytes, blocking)
    if clock.in_backward and ends[1] is not None:
        target.arrival = clock, issued  # type: ignore[attr-defined]


def _number(tensor: Tensor) -> int | None:
    """Return the number of the device that a tensor lies on; None: the CPU."""
    return tensor.device.index if tensor.device.type == "sim" else None


def charge_read(device: int, num_bytes: int) -> None:
    """Charge for a number that Python reads: the host waits for it."""
    clock = simulation.clock
    seconds = copy_seconds(clock.cluster.host_link, num_bytes)
    clock.copy(device, None, seconds, num_bytes, blocking=True)


def charge_factory(
    name: str, num_bytes: int, device: int, fills: bool
) -> None:
    """Charge for a tensor that was made of nothing."""
    clock = simulation.clock
    cluster = clock.cluster
    if not fills:
        clock.busy(device, name, cluster.host.view_seconds)
        return
    seconds = operation_seconds(cluster.accelerator, 0, num_bytes)
    clock.compute(device, name, seconds, num_bytes)
