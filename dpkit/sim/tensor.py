"""The tensor of a simulated device: a plain tensor that claims to be there.

A ``SimTensor`` has the shape, dtype and device ``sim:i`` that PyTorch sees,
and a backing: a plain tensor on the CPU that holds the numbers. Every
operation on it comes to ``__torch_dispatch__``, and passes five steps in
:func:`_run`::

    check   may the tensors mix, are they of this machine?  check_mixture
            is a generator one of simulated devices?        check_generator
    unwrap  put backings in place of simulated tensors      _unwrap
    run     on the backings, by the CPU's own kernel        run_plain
    wrap    put what comes out on the device                _wrap
    charge  the clock, for launches, arithmetic, traffic    charge
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from dpkit.sim.backward import hear, in_backward, put_aside
from dpkit.sim.behaviour import SIM_CLASSES, Behaviour, plain
from dpkit.sim.charge import charge, charge_read
from dpkit.sim.configuration import simulation
from dpkit.sim.kernels.own import run_plain
from dpkit.sim.memory import tensors_in
from dpkit.sim.operations import (
    Args,
    Kwargs,
    OpCall,
    alias_kind,
    arguments,
    aten,
    backing_of,
    by_position,
    check_home,
    check_mixture,
    has_stand_in,
    is_composed,
    is_cpu_number,
    no_numbers,
    own_key,
)
from dpkit.sim.random_numbers import check_generator
from dpkit.sim.refusals import check_dense
from dpkit.sim.small_integers import lose_numbers, numbers_of
from dpkit.sim.storages import made_pinned

_AUTOGRAD = torch._C.DispatchKey.AutogradPrivateUse1


class SimTensor(Behaviour):
    """A tensor on a simulated device; torch makes it, nobody by hand."""

    # In backward: the clock, and when another thread issued the copy of it.
    arrival: tuple[Any, int] | None = None

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
        for kind in types:
            if not issubclass(kind, Behaviour):
                return NotImplemented  # it has simulated tensors inside
        hear()
        call = OpCall(func, args, kwargs or {})
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
    # device   where the result is to lie
    # out      what comes out, of plain tensors; wrapped: of simulated ones
    #
    # x + y of three float32 each, both on sim:1:
    #
    # check    x and y are on sim:1: so is the sum
    # unwrap   (x, y) -> (x.backing, y.backing), two tensors on the CPU
    # run      add(x.backing, y.backing), as the CPU does it
    # wrap     the sum gets a SimTensor on sim:1, whose memory grows by
    #          12 bytes; it is new, so it shares no memory with x or y
    # charge   the host pays for a launch; the stream of sim:1 is busy with
    #          12 + 12 + 12 bytes of traffic
    if call.func is aten._local_scalar_dense.default:
        return read_number(call.args[0])
    if is_composed(call.func):
        return _run_composed(call)
    inputs = tensors_in(call.args)
    if call.kwargs:
        inputs += tensors_in(call.kwargs)
    device = check_mixture(call, inputs)
    if device is None:
        return _run_by_position(call)
    check_generator(call, device)
    out = run_plain(_unwrap(call, device))
    wrapped = _wrap(call, out, device)
    charge(call, inputs, wrapped, device)
    return wrapped


def _unwrap(call: OpCall, device: torch.device) -> OpCall:
    args, kwargs = _plain(call.args), _plain(call.kwargs)
    if kwargs.get("device") is not None:
        kwargs["device"] = backing_of(device)
    found = OpCall(call.func, args, kwargs)
    return _blocking(found) if simulation.backing.type == "cuda" else found


def _blocking(call: OpCall) -> OpCall:  # only on CUDA
    """Return a copy as one that the host waits for, all else as it is.

    The program will wait for it on the simulated clock. Nobody would wait for
    the GPU that holds the numbers.
    """
    func, args, kwargs = call
    if func is aten.copy_.default and len(args) > 2:
        args = (*args[:2], False)  # copy_(target, source, non_blocking)
    if kwargs.get("non_blocking"):
        kwargs = {**kwargs, "non_blocking": False}
    return OpCall(func, args, kwargs)


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


def _wrap(call: OpCall, out: Any, device: torch.device) -> Any:
    """Return ``out`` as simulated tensors, or what was written to."""
    func = call.func
    if func is aten._pack_padded_sequence.default:
        numbers, lengths = out
        return _wrapped(numbers, device), lengths  # these stay on the CPU
    wrapped = _wrapped(out, device)
    kind, positions = alias_kind(func)
    if kind == "view":
        return _correct_view(call, wrapped)
    if kind == "written":
        for tensor in tensors_in(arguments(call, positions)):
            if isinstance(tensor, SimTensor):
                tensor.follow_backing()
        return _what_was_written(call)
    to_cpu = func is aten._to_copy.default and device.type == "cpu"
    if to_cpu and call.kwargs.get("non_blocking"):
        return made_pinned(wrapped)  # as PyTorch does
    return wrapped


def _wrapped(out: Any, device: torch.device) -> Any:
    """Return ``out`` with every tensor in it on ``device``."""
    kind = type(out)
    if isinstance(out, Tensor):
        if device.type != "sim":
            lose_numbers(out)  # on torch's "meta", where none are followed
            return out
        try:
            return SimTensor(out, device)
        except RuntimeError:
            check_dense(out, device)
            raise
    if kind is list or kind is tuple:
        return kind([_wrapped(item, device) for item in out])
    return out


def _correct_view(call: OpCall, out: Any) -> Any:
    """Make a view share the storage of its base."""
    base = call.args[0]
    if type(base) is SimTensor:  # not one of a lazy layer
        out = return_and_correct_aliasing(*call, out)
    if base.is_inference():
        return tree_map_only(Tensor, _as_inference, out)
    return out


def _what_was_written(call: OpCall) -> Any:
    """Return the arguments that were written to, as ``func`` returns them."""
    if not call.func._schema.returns:
        return None
    given = arguments(call, alias_kind(call.func)[1])
    return given[0] if len(given) == 1 else tuple(given)


def read_number(tensor: Tensor) -> bool | int | float | complex:
    """Return the number that ``tensor`` holds; the host waits for it."""
    backing = plain(tensor)
    check_home([tensor])
    known = numbers_of(backing)
    if known is None:
        raise no_numbers(tensor)
    charge_read(tensor, backing.nbytes)
    return known.item()


def _run_by_position(call: OpCall) -> Any:
    """Run a list operation on lists whose positions differ in device."""
    results = [_run(column) for column in by_position(call)]
    return None if results[0] is None else [r[0] for r in results]


def _run_composed(call: OpCall) -> Any:
    """Run the operations that ``call`` is composed of."""
    func, args, kwargs = call
    if has_stand_in(func):
        return func._op_dk(_AUTOGRAD, *args, **kwargs)
    if (key := own_key(func)) is not None:
        return func._op_dk(key, *args, **kwargs)
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
    if is_composed(call.func):
        return _run_composed(call)
    if alias_kind(call.func)[0] == "new":
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
    """Return something for backward to carry on with after an error."""
    # x + y, refused        zeros of the shape of the sum
    # x @ y, wrong shapes   zeros of the shape of x: there is no better
    # x.add_(y), refused    x, as it is
    func, args, kwargs = call
    if alias_kind(func)[0] == "written" or not func._schema.returns:
        return _what_was_written(call)
    tensors = tensors_in([args, kwargs])
    first = next((t for t in tensors if not is_cpu_number(t)), tensors[0])
    try:
        # Zeros, for a storage that was freed cannot be read.
        given = _plain(args), _plain(kwargs)
        args, kwargs = tree_map_only(Tensor, torch.zeros_like, given)
        out = func(*args, **kwargs)
    except Exception:
        out = plain(tensors[0])
    blank = tree_map_only(Tensor, torch.zeros_like, out)
    with simulation.memory.paused():
        return _wrapped(blank, first.device)
