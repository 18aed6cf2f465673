"""Charge the clock for what ran: an operation, a copy, a view.

An operation costs launches on the host, and arithmetic and traffic on the
device. Arithmetic is counted in ``flops``, traffic in ``memory_traffic``.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.clock.interface import ClockInterface
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.hardware import Host
from dpkit.sim.hardware.costs import copy_seconds, operation_seconds
from dpkit.sim.operators.operations import OpCall, host_waits
from dpkit.sim.operators.precision import compute_dtype
from dpkit.sim.tensors.storages import is_pinned
from dpkit.sim.tracing import mark_results, tracing


def charge(
    call: OpCall,
    inputs: Sequence[Tensor],
    out: Any,
    device: torch.device | None,
) -> None:
    """Charge for what ran, and tell a trace what the new memory is for.

    Args:
        call: The operation with its arguments.
        inputs: The tensors among these.
        out: What it has returned, of plain tensors; None: nothing, in place.
        device: The simulated device that it ran on. None: it ran on none, or
            it is a copy, whose devices are those of its tensors.
    """
    operator = call.operator
    if operator.is_copy:
        with simulation.clock.lock:
            _charge_pairs(call, out)
    elif device is not None:
        is_traced = tracing()
        with simulation.clock.lock:
            if is_traced and simulation.races is not None:
                simulation.races.ran(call, inputs, out, device.index)
            _charge_one(call, inputs, out, device.index)
        if is_traced and operator.kind == "new":
            mark_results(out)


def _charge_one(
    call: OpCall,
    inputs: Sequence[Tensor],
    out: Any,
    device: int,
) -> None:
    """Charge for an operation on one device."""
    # mm of (2, 3) and (3, 5), float32: 2·2·3·5 = 60 operations;
    # it reads 4·(6 + 15) and writes 4·10 bytes, 124 together.
    operator = call.operator
    clock = simulation.clock
    accelerator = clock.cluster.accelerator
    if clock.hosts.in_backward:
        await_arrivals(inputs, device)
    if not operator.launches:
        seconds = clock.cluster.host.view_seconds
        clock.hosts.busy(device, operator.name, seconds)
        return
    written = call.args[0] if out is None else out  # a list, in place
    num_bytes = operator.memory_traffic(call, inputs, written)
    flops = 0
    dtype = "float32"
    kind = ""
    launches = 1
    if operator.flops is not None:
        flops = operator.flops(call, out, accelerator.synchronous)
        dtype = compute_dtype(operator.name, inputs[0]) if flops else dtype
        if operator.rate is not None:
            kind = operator.rate(call, accelerator.synchronous)
        if operator.per_gradient:
            launches = sum(call.args[-1])
    seconds = operation_seconds(
        accelerator, flops=flops, num_bytes=num_bytes, dtype=dtype, kind=kind
    )
    clock.compute(
        device,
        operator.name,
        seconds=seconds,
        num_bytes=num_bytes,
        flops=flops,
        launches=launches,
        phase=_phase(clock, inputs),
    )
    if operator.may_wait and host_waits(call):
        clock.wait(device, clock.current[device])
        if simulation.races is not None:
            simulation.races.host_waits_for_issued(device)


def _phase(clock: ClockInterface[Any], inputs: Sequence[Tensor]) -> str:
    """Return the phase of training that an operation belongs to."""
    if clock.hosts.in_backward:
        return "backward"
    if not torch.is_grad_enabled():
        return ""
    return "forward" if any(x.requires_grad for x in inputs) else ""


def _charge_pairs(call: OpCall, out: Any) -> None:
    """Charge for a copy, or for a list of them, each to its target."""
    operator, args, kwargs = call
    is_new = operator.kind == "new"  # the memory that it copies to
    non_blocking = kwargs.get("non_blocking", False)
    if operator.name == "_to_copy":
        pairs = [(args[0], out)]
    else:
        non_blocking = args[2] if len(args) > 2 else non_blocking
        pairs = [(args[1], args[0])]
        if operator.is_list:
            pairs = list(zip(args[1], args[0]))
    for source, target in pairs:
        if source.device == target.device:
            if simulation.races is not None:
                simulation.races.used(
                    "copy",
                    target.device.index,
                    reads=[source],
                    writes=[target],
                    made=[target] if is_new else [],
                )
            _charge_one(call, (source,), target, target.device.index)
        else:
            charge_copy(
                source, target, non_blocking=bool(non_blocking), is_new=is_new
            )


def charge_copy(
    source: Tensor, target: Tensor, non_blocking: bool, is_new: bool = False
) -> None:
    """Charge for a copy from one tensor to another, on another device.

    Args:
        source: What is copied, on a simulated device or the CPU.
        target: Where it goes.
        non_blocking: Whether the host may go on. If the memory on the CPU is
            not pinned, it waits all the same.
        is_new: Whether the memory of the target was made for the copy.
    """
    # ends (0, 1):    sim:0 to sim:1; the host goes on at once
    # ends (0, None): sim:0 to the CPU; the host waits, unless the memory
    #                 there is pinned and the copy asked not to block
    clock = simulation.clock
    if simulation.races is not None:
        simulation.races.copied(source, target, is_new)
    cluster = clock.cluster
    ends = (_number(source), _number(target))
    link = cluster.link_between(*ends)
    limit = inf
    on_host = source if ends[0] is None else target
    pageable = None in ends and not is_pinned(on_host)
    if pageable:
        limit = _pageable_rate(
            cluster.host, to_device=ends[0] is None, is_new=is_new
        )
    seconds = copy_seconds(link, target.nbytes, at_most=limit)
    share = min(1.0, limit / (link.bytes_per_second * link.achieved))
    if clock.hosts.in_backward and ends[0] is not None:
        await_arrivals([source], ends[0])
    blocking = None in ends and (pageable or not non_blocking)
    issued = clock.copy(
        *ends,
        seconds=seconds,
        num_bytes=target.nbytes,
        blocking=blocking,
        share=share,
    )
    if blocking and simulation.races is not None:
        index = next(end for end in ends if end is not None)
        simulation.races.host_waits_for_issued(index)
    if clock.hosts.in_backward and ends[1] is not None:
        target.arrival = clock, issued  # type: ignore[attr-defined]


def _pageable_rate(host: Host, to_device: bool, is_new: bool) -> float:
    """Return the rate of a copy from or to memory that is not pinned."""
    if to_device:
        return host.to_device_bytes_per_second
    if is_new:
        return host.new_memory_bytes_per_second
    return host.from_device_bytes_per_second


def await_arrivals(inputs: Sequence[Tensor], device: int) -> None:
    """Make autograd's thread of ``device`` wait for what others sent.

    Its stream waits for the sums of collectives that it has not waited for.
    """
    clock = simulation.clock
    for tensor in inputs:
        wait_in_stream = getattr(tensor, "awaited", None)
        if wait_in_stream is not None:
            wait_in_stream()
        arrival = getattr(tensor, "arrival", None)
        if arrival is not None:
            of_clock, issued = arrival
            if of_clock is clock:
                clock.hosts.await_thread(device, issued)


def _number(tensor: Tensor) -> int | None:
    # The number of its device; None: the CPU.
    return tensor.device.index if tensor.device.type == "sim" else None


def charge_read(tensor: Tensor, num_bytes: int) -> None:
    """Charge for values that Python reads: the host waits for them."""
    clock = simulation.clock
    device = tensor.device.index
    if simulation.races is not None:
        simulation.races.used("item", device, reads=[tensor])
        simulation.races.host_waits_for_issued(device)
    seconds = copy_seconds(clock.cluster.host_link, num_bytes)
    with clock.lock:
        clock.copy(
            device, None, seconds=seconds, num_bytes=num_bytes, blocking=True
        )


def charge_factory(
    name: str, backing: Tensor, device: int, fills: bool
) -> None:
    """Charge for a tensor that was made from no other, as by ``zeros``.

    Args:
        name: The name of the operation.
        backing: The plain tensor that was made.
        device: The number of the device that it is on.
        fills: Whether its values are written, unlike those of ``empty``.
    """
    clock = simulation.clock
    cluster = clock.cluster
    num_bytes = backing.nbytes
    if simulation.races is not None:
        simulation.races.made([backing], device)
        if fills:
            simulation.races.used(name, device, reads=[], writes=[backing])
    seconds = operation_seconds(
        cluster.accelerator, flops=0, num_bytes=num_bytes
    )
    with clock.lock:
        if fills:
            phase = _phase(clock, [])
            clock.compute(
                device, name, seconds=seconds, num_bytes=num_bytes, phase=phase
            )
        else:
            clock.hosts.busy(device, name, cluster.host.view_seconds)
