"""Charge the clock for what ran: an operation, a copy, a view.

An operation costs launches on the host, and arithmetic and traffic on the
device. Arithmetic is counted in ``flops``; traffic is what its kernels read
and write (``theory.hardware.traffic``).
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.configuration import simulation
from dpkit.sim.flops import num_flops
from dpkit.sim.memory import tensors_in
from dpkit.sim.operations import (
    COPIES,
    OpCall,
    alias_kind,
    aten,
    base_name,
    host_waits,
    launches_kernel,
)
from dpkit.sim.storages import is_pinned
from dpkit.sim.tracing import mark_results, tracing
from dpkit.theory.hardware import Host
from dpkit.theory.hardware.costs import copy_seconds, operation_seconds
from dpkit.theory.hardware.traffic import (
    ONLY_WRITES,
    READS_WHAT_IT_WRITES,
    TRAFFIC,
)

# Copies to memory that they make.
MAKE = {aten._to_copy.default, aten._foreach_copy.default}
# Where their arguments say whether they train; if not, each is read once.
_TRAINS = {"native_batch_norm": 5, "native_batch_norm_backward": 7}

# Convolution -> the places of its weight, and of its stride and what follows:
# stride, padding, dilation, transposed, output padding, groups.
_CONVOLUTIONS = {
    "convolution": (1, 3),
    "_convolution": (1, 3),
    "convolution_backward": (2, 4),
}
FAST_KERNELS = ((3, 3), (5, 5))


def charge(
    call: OpCall, inputs: Sequence[Tensor], out: Any, device: torch.device
) -> None:
    """Charge for what ran, and tell a trace what the new memory is for."""
    if call.func in COPIES:
        with simulation.clock.lock:
            _charge_pairs(call, out)
    elif device.type == "sim":
        is_traced = tracing()
        with simulation.clock.lock:
            if is_traced and simulation.races is not None:
                simulation.races.ran(call, inputs, out, device.index)
            _charge_one(call, inputs, out, device.index)
        if is_traced and alias_kind(call.func)[0] == "new":
            mark_results(out)


def _charge_one(
    call: OpCall, inputs: Sequence[Tensor], out: Any, device: int
) -> None:
    """Charge for an operation on one device."""
    # mm of (2, 3) and (3, 5), float32: 2·2·3·5 = 60 operations;
    # it reads 4·(6 + 15) and writes 4·10 bytes, 124 together.
    clock = simulation.clock
    cluster = clock.cluster
    name = base_name(call.func)
    if clock.hosts.in_backward:
        await_arrivals(inputs, device)
    if not launches_kernel(call.func):
        clock.hosts.busy(device, name, cluster.host.view_seconds)
        return
    flops = num_flops(call, out)
    written = call.args[0] if out is None else out  # a list, in place
    num_bytes = _num_bytes(call, inputs, written)
    dtype = compute_dtype(call.func, inputs[0]) if flops else "float32"
    seconds = operation_seconds(
        cluster.accelerator, flops, num_bytes, dtype, convolution_class(call)
    )
    launches = _num_kernels(call)
    clock.compute(device, name, seconds, num_bytes, flops, launches)
    if host_waits(call):
        clock.wait(device, clock.current[device])
        if simulation.races is not None:
            simulation.races.host_waits_for_issued(device)


def _num_kernels(call: OpCall) -> int:
    """Return how many kernels are launched."""
    if call.func is aten.convolution_backward.default:
        return sum(call.args[-1])  # one for each gradient that is asked for
    return 1


def _num_bytes(call: OpCall, inputs: Sequence[Tensor], written: Any) -> int:
    """Return the bytes that an operation reads and writes."""
    name = base_name(call.func)
    total = sum(x.nbytes for x in tensors_in(written))
    if name in READS_WHAT_IT_WRITES:
        return 2 * total
    if name in ONLY_WRITES:
        return total
    reads, writes = TRAFFIC.get(name, (1, 1))
    if name in _TRAINS and not call.args[_TRAINS[name]]:
        reads = 1
    total = writes * total + reads * sum(x.nbytes for x in inputs)
    if name == "convolution_backward":  # each kernel reads the gradient
        total += (_num_kernels(call) - 1) * call.args[0].nbytes
    return total


def convolution_class(call: OpCall) -> str:
    """Return "fast" or "other" for a convolution, "" for all else.

    For the fast ones, libraries have algorithms with fewer multiplications
    than are counted.
    """
    # weight          stride  dilation  groups  class
    # (64, 32, 3, 3)    1        1        1     fast
    # (64, 32, 3, 3)    2        1        1     other
    # (64, 32, 1, 1)    1        1        1     other
    # (64, 1, 3, 3)     1        1        64    other
    place = _CONVOLUTIONS.get(base_name(call.func))
    if place is None:
        return ""
    weight, first = place
    stride, _, dilation, transposed, _, groups = call.args[first : first + 6]
    square = tuple(call.args[weight].shape[2:]) in FAST_KERNELS
    plain = {*stride, *dilation, groups} == {1} and not transposed
    return "fast" if square and plain else "other"


def compute_dtype(func: OpOverload, tensor: Tensor) -> str:
    """Return the name of the dtype that an operation computes in."""
    # By default tensor cores may round float32 to "tf32" in convolutions, but
    # not in products.
    if tensor.dtype != torch.float32:
        return str(tensor.dtype).removeprefix("torch.")
    kind: Any = torch.backends.cuda.matmul
    if base_name(func) in _CONVOLUTIONS:
        cudnn: Any = torch.backends.cudnn
        kind = cudnn.conv
    return "tf32" if kind.fp32_precision == "tf32" else "float32"


def _charge_pairs(call: OpCall, out: Any) -> None:
    """Charge for one of ``COPIES``, from each source to its target."""
    func, args, kwargs = call
    non_blocking = kwargs.get("non_blocking", False)
    if func is aten._to_copy.default:
        pairs = [(args[0], out)]
    else:
        non_blocking = args[2] if len(args) > 2 else non_blocking
        pairs = [(args[1], args[0])]
        if func is not aten.copy_.default:  # a list to a list
            pairs = list(zip(args[1], args[0]))
    for source, target in pairs:
        if source.device == target.device:
            if simulation.races is not None:
                index, is_new = target.device.index, func in MAKE
                to = [target], [target] if is_new else []
                simulation.races.used("copy", index, [source], *to)
            _charge_one(call, (source,), target, target.device.index)
        else:
            charge_copy(source, target, bool(non_blocking), func in MAKE)


def charge_copy(
    source: Tensor, target: Tensor, non_blocking: bool, is_new: bool = False
) -> None:
    """Charge for a copy from one tensor to another, on another device.

    ``is_new`` says whether the memory of the target was made for the copy.
    """
    # ends (0, 1):    sim:0 to sim:1; the host goes on at once
    # ends (0, None): sim:0 to the CPU; the host waits, unless the memory
    #                 there is pinned and the copy asked not to block
    clock = simulation.clock
    if simulation.races is not None:
        simulation.races.copied(source, target, is_new)
    cluster = clock.cluster
    ends = (_number(source), _number(target))
    link, limit = cluster.link_between(*ends), inf
    on_host = source if ends[0] is None else target
    pageable = None in ends and not is_pinned(on_host)
    if pageable:
        limit = _pageable_rate(cluster.host, ends[0] is None, is_new)
    seconds = copy_seconds(link, target.nbytes, at_most=limit)
    share = min(1.0, limit / (link.bytes_per_second * link.achieved))
    if clock.hosts.in_backward and ends[0] is not None:
        await_arrivals([source], ends[0])
    blocking = None in ends and (pageable or not non_blocking)
    issued = clock.copy(*ends, seconds, target.nbytes, blocking, share)
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
    """Make autograd's thread of ``device`` wait for what others sent."""
    clock = simulation.clock
    for tensor in inputs:
        arrival = getattr(tensor, "arrival", None)
        if arrival is not None and arrival[0] is clock:
            clock.hosts.await_thread(device, arrival[1])


def _number(tensor: Tensor) -> int | None:
    # The number of its device; None: the CPU.
    return tensor.device.index if tensor.device.type == "sim" else None


def charge_read(tensor: Tensor, num_bytes: int) -> None:
    """Charge for numbers that Python reads: the host waits for them."""
    clock, device = simulation.clock, tensor.device.index
    if simulation.races is not None:
        simulation.races.used("item", device, [tensor])
        simulation.races.host_waits_for_issued(device)
    seconds = copy_seconds(clock.cluster.host_link, num_bytes)
    with clock.lock:
        clock.copy(device, None, seconds, num_bytes, blocking=True)


def charge_factory(
    name: str, backing: Tensor, device: int, fills: bool
) -> None:
    """Charge for a tensor that was made from no other."""
    clock = simulation.clock
    cluster, num_bytes = clock.cluster, backing.nbytes
    if simulation.races is not None:
        simulation.races.made([backing], device)
        if fills:
            simulation.races.used(name, device, [], [backing])
    seconds = operation_seconds(cluster.accelerator, 0, num_bytes)
    with clock.lock:
        if fills:
            clock.compute(device, name, seconds, num_bytes)
        else:
            clock.hosts.busy(device, name, cluster.host.view_seconds)
