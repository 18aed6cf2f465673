"""The tensor of a simulated device: a plain tensor that claims to be there.

A ``SimTensor`` has the shape, dtype and device ``sim:i`` that PyTorch sees,
and a backing: a plain tensor on the CPU that holds the values. Every
operation on it comes to ``__torch_dispatch__``, which looks up what is known
of its operator (``record.operator_of``), and passes five steps in
:func:`_run`::

    open    put backings in place of simulated tensors      _opened
    check   may the tensors mix, are they of this machine?  _usual_device;
            what is not usual is looked at more closely     check_inputs
            is a generator one of simulated devices?        check_generator
    run     on the backings, by the CPU's own kernel        run_plain
    wrap    put what comes out on the device                _wrap
    charge  the clock, for launches, arithmetic, traffic    charge
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from dpkit.sim.containers import tensors_in
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import device_of
from dpkit.sim.kernels.own import run_plain
from dpkit.sim.memory.small_integers import lose_values, values_of
from dpkit.sim.operators import operations
from dpkit.sim.operators.operations import (
    Args,
    Kwargs,
    OpCall,
    arguments,
    aten,
    backing_of,
    by_position,
    check_inputs,
    check_machine_of,
    is_cpu_scalar,
)
from dpkit.sim.operators.random_numbers import check_generator
from dpkit.sim.operators.record import operator_of
from dpkit.sim.operators.refusals import check_dense
from dpkit.sim.tensors.backward import in_backward, poll, put_aside
from dpkit.sim.tensors.behaviour import SIM_CLASSES, Behaviour, plain
from dpkit.sim.tensors.charge import charge, charge_read
from dpkit.sim.tensors.storages import made_pinned

# The kinds of most arguments that are no tensors.
NUMBERS = {int, float, bool, type(None), torch.dtype, torch.memory_format}


class SimTensor(Behaviour):
    """A tensor on a simulated device; torch makes it, nobody by hand."""

    # In backward: the clock, and when another thread issued the copy of it.
    arrival: tuple[Any, int] | None = None
    # In backward: has the stream wait for the collective that makes the sum.
    awaited: Callable[[], None] | None = None

    # Operations reach __torch_dispatch__ alone, which is less work.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: OpOverload,
        types: Any,
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> Any:
        if not isinstance(cls, type):
            return NotImplemented  # torch asks once more: dispatch_rule.py
        for kind in types:
            if not issubclass(kind, Behaviour):
                return NotImplemented  # it has simulated tensors inside
        poll()
        call = OpCall(operator_of(func), args, kwargs or {})
        if torch.is_inference_mode_enabled():
            return _run_in_inference_mode(call)
        try:
            return _run(call)
        except BaseException as error:
            if not in_backward():
                raise
            put_aside(error)
            return _placeholder(call)

    # By these two torch.compile knows that there is a tensor inside.
    def __tensor_flatten__(self) -> tuple[list[str], torch.device]:
        return ["backing"], self.device

    @staticmethod
    def __tensor_unflatten__(
        parts: dict[str, Tensor], device: torch.device, *_: Any
    ) -> "SimTensor":
        return SimTensor(parts["backing"], device)


SIM_CLASSES[Tensor] = SIM_CLASSES[torch.nn.Parameter] = SimTensor


def _run(call: OpCall) -> Any:
    """Run an operation on simulated tensors."""
    # call     the operation, and what it is given
    # inputs   the tensors in that
    # args     what it is given, with backings in place of them; kwargs as well
    # device   where the result is to lie; None: on no simulated one
    # out      what comes out, of plain tensors; wrapped: of simulated ones
    #
    # x + y of three float32 each, both on sim:1:
    #
    # call     add makes a new tensor, and reads and writes each number once
    # open     (x, y) -> (x.backing, y.backing), two tensors on the CPU
    # check    x and y are on sim:1: so is the sum
    # run      add(x.backing, y.backing), as the CPU does it
    # wrap     the sum gets a SimTensor on sim:1, whose memory grows by
    #          12 bytes; it is new, so it shares no memory with x or y
    # charge   the host pays for a launch; the stream of sim:1 is busy with
    #          12 + 12 + 12 bytes of traffic
    operator = call.operator
    if operator.is_composed:
        return _run_composed(call)
    inputs: list[Tensor] = []
    args = tuple(_opened(call.args, inputs))
    kwargs = _opened_by_name(call.kwargs, inputs) if call.kwargs else {}
    device = _usual_device(call, inputs)
    if device is None:
        target = check_inputs(call, inputs)
        if target is None:
            return _run_by_position(call)
        if kwargs and kwargs.get("device") is not None:
            kwargs["device"] = backing_of(target)
        device = target if target.type == "sim" else None
    if operator.generator is not None and device is not None:
        check_generator(call, device)
    out = run_plain(operator, args, kwargs)
    wrapped = _wrap(call, out, device)
    charge(call, inputs, wrapped, device)
    return wrapped


def _opened(values: Sequence[Any], found: list[Tensor]) -> list[Any]:
    """Return values with backings in place of simulated tensors.

    All tensors are added to ``found``, also those inside of lists.
    """
    opened = []
    for value in values:
        kind = type(value)
        if kind is SimTensor:
            found.append(value)
            opened.append(value.backing)
        elif kind in NUMBERS:
            opened.append(value)
        elif kind is list or kind is tuple:
            opened.append(kind(_opened(value, found)))
        elif isinstance(value, Tensor):
            found.append(value)
            opened.append(plain(value))
        else:
            opened.append(value)
    return opened


def _opened_by_name(values: Kwargs, found: list[Tensor]) -> Kwargs:
    return dict(zip(values, _opened(tuple(values.values()), found)))


def _usual_device(call: OpCall, inputs: list[Tensor]) -> torch.device | None:
    """Return the one device of all inputs, if nothing is to be checked.

    All are of this machine, nothing of it was freed, and no values are read.
    """
    operator, _, kwargs = call
    memory = simulation.memory
    if operator.may_wait or operator.is_copy or memory.freed:
        return None
    if kwargs and kwargs.get("device") is not None:
        return None
    device = device_of(inputs[0])
    owner = memory.number
    for x in inputs:
        if type(x) is not SimTensor or x.owner != owner:
            return None
        if device_of(x) != device:
            return None
    return device


def _plain(value: Any) -> Any:
    """Return ``value`` with the backings of the simulated tensors in it."""
    kind = type(value)
    if kind is SimTensor:
        return value.backing
    if kind is list or kind is tuple:
        return kind([_plain(item) for item in value])
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    return plain(value) if isinstance(value, Tensor) else value


def _wrap(call: OpCall, out: Any, device: torch.device | None) -> Any:
    """Return ``out`` as simulated tensors, or what was written to."""
    operator = call.operator
    kind = operator.kind
    name = operator.name
    if kind == "written":
        for tensor in tensors_in(arguments(call, operator.returned)):
            if isinstance(tensor, SimTensor):
                tensor.follow_backing()
        return _what_was_written(call)
    if name == "_pack_padded_sequence":
        values, lengths = out
        return _wrapped(values, device), lengths  # these stay on the CPU
    wrapped = _wrapped(out, device)
    if kind == "view":
        return _correct_view(call.args[0], wrapped)
    if device is None and name == "_to_copy":
        to_cpu = call.kwargs["device"].type == "cpu"  # also without values
        if to_cpu and call.kwargs.get("non_blocking"):
            return made_pinned(wrapped)  # as PyTorch does
    return wrapped


def _wrapped(out: Any, device: torch.device | None) -> Any:
    """Return ``out`` with every tensor in it on ``device``."""
    kind = type(out)
    if isinstance(out, Tensor):
        if device is None:
            lose_values(out)  # on torch's "meta", where none are followed
            return out
        try:
            return SimTensor(out, device)
        except RuntimeError:
            check_dense(out, device)
            raise
    if kind is list or kind is tuple:
        return kind([_wrapped(item, device) for item in out])
    return out


def _correct_view(base: Tensor, out: Any) -> Any:
    """Make a view share the storage of its base, the first argument."""
    if type(base) is SimTensor:  # not one of a lazy layer
        for view in [out] if type(out) is SimTensor else out:
            torch._functionalize_unsafe_set(view, base)
    if base.is_inference():
        return tree_map_only(Tensor, _as_inference, out)
    return out


def _what_was_written(call: OpCall) -> Any:
    """Return the arguments that were written to, as ``func`` returns them."""
    if not call.func._schema.returns:
        return None
    given = arguments(call, call.operator.returned)
    return given[0] if len(given) == 1 else tuple(given)


def read_number(tensor: Tensor) -> bool | int | float | complex:
    """Return the number that ``tensor`` holds; the host waits for it."""
    backing = plain(tensor)
    check_machine_of([tensor])
    operations.require_values(tensor)
    known = values_of(backing)
    assert known is not None
    charge_read(tensor, backing.nbytes)
    return known.item()


def _run_by_position(call: OpCall) -> Any:
    """Run a list operation on lists whose positions differ in device."""
    results = [_run(column) for column in by_position(call)]
    return None if results[0] is None else [r[0] for r in results]


def _run_composed(call: OpCall) -> Any:
    """Run the operations that ``call`` is composed of."""
    operator, args, kwargs = call
    func = operator.func
    if func is aten._local_scalar_dense.default:
        return read_number(args[0])
    if operator.key is not None:
        return func._op_dk(operator.key, *args, **kwargs)
    out = func.decompose(*args, **kwargs)
    for tensor in tensors_in(out):
        if tensor.device.type == "sim":
            check_dense(tensor, tensor.device)
    return out


def _run_in_inference_mode(call: OpCall) -> Any:
    """Run an operation in inference mode."""
    # x is ordinary, y an inference tensor:
    #
    # x * 2     is new: an inference tensor, which SimTensor makes here; on
    #           the CPU run_plain has made an ordinary one
    # x[0]      views x: ordinary, as x
    # y[0]      views y: an inference tensor, by _correct_view
    # x.mul_(2) returns x, which stays ordinary
    if call.operator.is_composed:
        return _run_composed(call)
    if call.operator.kind == "new":
        out = _run(call)
        return _as_inference(out) if type(out) is Tensor else out
    with torch.inference_mode(False), torch.no_grad():
        return _run(call)


@torch.inference_mode()
def _as_inference(tensor: Tensor) -> Tensor:
    """Return an inference tensor in the memory of ``tensor``."""
    if not isinstance(tensor, SimTensor):
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return cast(Tensor, aten.set_.source_Tensor(empty, tensor))
    made = SimTensor(tensor.backing, tensor.device)
    torch._functionalize_unsafe_set(made, tensor)  # one storage for both
    return made


def _placeholder(call: OpCall) -> Any:
    """Return a tensor with which backward carries on after an error."""
    # x + y, refused        zeros of the shape of the sum
    # x @ y, wrong shapes   zeros of the shape of x: there is no better
    # x.add_(y), refused    x, as it is
    operator, args, kwargs = call
    func = operator.func
    if operator.kind == "written" or not func._schema.returns:
        return _what_was_written(call)
    tensors = tensors_in([args, kwargs])
    first = next((t for t in tensors if not is_cpu_scalar(t)), tensors[0])
    try:
        # Zeros, for a storage that was freed cannot be read.
        given = _plain(args), _plain(kwargs)
        args, kwargs = tree_map_only(Tensor, torch.zeros_like, given)
        out = func(*args, **kwargs)
    except Exception:
        out = plain(tensors[0])
    blank = tree_map_only(Tensor, torch.zeros_like, out)
    device = first.device if first.device.type == "sim" else None
    with simulation.memory.paused():
        return _wrapped(blank, device)
