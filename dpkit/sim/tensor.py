"""The tensor of a simulated device: a plain tensor that claims to be there.

A ``SimTensor`` has the shape, dtype and device ``sim:i`` that PyTorch sees,
and a backing: a plain tensor on the CPU that holds the numbers::

    a + b      SimTensor a, on sim:1      SimTensor b, on sim:1
      |              |                          |
      v              v                          v
    __torch_dispatch__:  1. may the two devices mix?
                         2. add the backings, by the CPU's own kernel
                         3. wrap the sum as a SimTensor on sim:1
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from dpkit.sim import as_on_cuda, categories
from dpkit.sim.backward import in_backward, put_aside
from dpkit.sim.behaviour import Behaviour
from dpkit.sim.charge import charge, charge_copies, charge_read
from dpkit.sim.classes import simulated
from dpkit.sim.configuration import simulation
from dpkit.sim.generator_arguments import (
    takes_generator,
    with_plain_generator,
)
from dpkit.sim.layouts import check_dense
from dpkit.sim.numbering import full_device
from dpkit.sim.pinned import made_pinned
from dpkit.sim.placement_rules import (
    COPIES,
    CPU_RESULTS,
    common_device,
    is_cpu_number,
    tensors_in,
)
from dpkit.sim.schemas import (
    alias_kind,
    arguments,
    comes_whole,
    has_stand_in,
)
from dpkit.sim.shapes import run_without_numbers
from dpkit.sim.without_numbers import check_readable, no_numbers

aten = torch.ops.aten
_AUTOGRAD = torch._C.DispatchKey.AutogradPrivateUse1


class SimTensor(Behaviour):
    """A tensor on a simulated device; torch makes it, nobody by hand.

    Args:
        backing: The plain tensor that holds the numbers.
        device: The device it claims to be on.

    Source:
        PyTorch's wrapper subclasses (``Tensor._make_wrapper_subclass``).
    """

    # In backward: the clock, and when another thread issued the copy of it.
    arrival: tuple[Any, int] | None = None

    # Operations reach __torch_dispatch__ alone, which is less work.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(  # noqa: D102
        cls: type[SimTensor], backing: torch.Tensor, device: torch.device
    ) -> SimTensor:
        if isinstance(backing, FakeTensor):
            raise NotImplementedError(
                "torch.compile does not know simulated devices (device: "
                f"{device}); run without it"
            )
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            backing.shape,
            strides=backing.stride(),
            storage_offset=backing.storage_offset(),
            dtype=backing.dtype,
            device=device,
        )
        tensor.backing = backing
        simulation.memory.hold(backing, device.index)
        # Marks of values still to be conjugated or negated: torch heeds them
        # before an operation comes to __torch_dispatch__, and not inside.
        torch._C._set_conj(tensor, backing.is_conj())
        torch._C._set_neg(tensor, backing.is_neg())
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():
            return _run_in_inference_mode(func, args, kwargs)
        try:
            return _run(func, args, kwargs)
        except BaseException as error:
            if not in_backward():
                raise
            put_aside(error)
            return _placeholder(func, args, kwargs)

    # By these two torch.compile knows that there is a tensor inside; it is
    # refused when it makes a new one.
    def __tensor_flatten__(self) -> tuple[list[str], torch.device]:
        return ["backing"], self.device

    @staticmethod
    def __tensor_unflatten__(
        parts: dict[str, torch.Tensor],
        device: torch.device,
        shape: Any,
        strides: Any,
    ) -> SimTensor:
        return SimTensor(parts["backing"], device)


simulated[torch.Tensor] = simulated[torch.nn.Parameter] = SimTensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the plain tensor that holds the numbers of ``tensor``."""
    return tensor.backing if isinstance(tensor, SimTensor) else tensor


def read_number(tensor: torch.Tensor) -> bool | int | float | complex:
    """Return the number that ``tensor`` holds; the host waits for it."""
    backing = plain(tensor)
    _check_home([tensor])
    if backing.is_meta:
        raise no_numbers(tensor.device)
    charge_read(tensor.device.index, backing.nbytes)
    return backing.item()


def _run(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    execute: Callable[..., Any] | None = None,
) -> Any:
    """Run ``func`` on the backings; wrap what comes out; charge for it.

    Args:
        func: The operation.
        args: What it is given.
        kwargs: The same, by name.
        execute: What runs it, on plain tensors; None: ``func`` itself.
    """
    if func is aten._local_scalar_dense.default:
        return read_number(args[0])
    if comes_whole(func):
        return _run_in_parts(func, args, kwargs)
    inputs: list[torch.Tensor] = []
    plain_args = _unwrap(args, inputs)
    plain_kwargs = _unwrap(kwargs, inputs)
    device = inputs[0].device
    if any(x.device != device for x in inputs[1:]):
        if func.name().startswith("aten::_foreach") and len(args[0]) > 1:
            return _run_by_position(func, args, kwargs)
        device = common_device(func, args, kwargs)
    if device.type == "sim" and device.index >= len(simulation.memory.live):
        full_device(device)  # refuses it
    _check_home(inputs)
    meta = simulation.backing.type == "meta"
    if meta:
        check_readable(func, args)
    if kwargs.get("device") is not None:
        device = full_device(kwargs["device"])
        plain_kwargs["device"] = _backing_of(device)
    if takes_generator(func) is not None:
        plain_args, plain_kwargs = with_plain_generator(
            func, plain_args, plain_kwargs, device
        )
    try:
        if meta:
            out = run_without_numbers(func, plain_args, plain_kwargs)
        else:
            out = (execute or func)(*plain_args, **plain_kwargs)
    except NotImplementedError as error:
        out = as_on_cuda.run(func, plain_args, plain_kwargs, error)
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            raise torch.OutOfMemoryError(str(error)) from None
        raise
    if func in CPU_RESULTS:
        stay = CPU_RESULTS[func]
        wrapped: Any = tuple(
            part if i in stay else _wrap(part, device)
            for i, part in enumerate(out)
        )
    else:
        wrapped = _correct_aliasing(func, args, kwargs, _wrap(out, device))
    if func in COPIES:
        if _makes_pinned(func, kwargs, device):
            wrapped = made_pinned(wrapped)
        with simulation.clock.lock:
            charge_copies(func, args, kwargs, wrapped)
    elif device.type == "sim":
        with simulation.clock.lock:
            charge(func, plain_args, plain_kwargs, inputs, out, device.index)
        if categories.tracing() and alias_kind(func)[0] == "new":
            categories.mark_results(wrapped)
    return wrapped


def _run_in_parts(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run what comes whole; refuse a result that is not dense."""
    if has_stand_in(func):
        return func._op_dk(_AUTOGRAD, *args, **kwargs)
    out = func.decompose(*args, **kwargs)
    for tensor in tensors_in(out):
        if tensor.device.type == "sim":
            check_dense(tensor, tensor.device)
    return out


def _run_in_inference_mode(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run ``func``; mark what it makes as PyTorch would."""
    if comes_whole(func):
        return _run_in_parts(func, args, kwargs)
    if alias_kind(func)[0] == "new":
        out = _run(func, args, kwargs, partial(_run_outside, func))
        return _marked(out) if type(out) is torch.Tensor else out
    with torch.inference_mode(False), torch.no_grad():
        return _run(func, args, kwargs)


def _run_outside(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run ``func`` on backings, which are ordinary tensors in any mode."""
    with torch.inference_mode(False), torch.no_grad():
        return func(*args, **kwargs)


@torch.inference_mode()
def _marked(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of inference mode in the memory of ``tensor``."""
    if not isinstance(tensor, SimTensor):
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return cast(torch.Tensor, aten.set_.source_Tensor(empty, tensor))
    marked = SimTensor(tensor.backing, tensor.device)
    torch._functionalize_unsafe_set(marked, tensor)
    return marked


def _check_home(tensors: list[torch.Tensor]) -> None:
    """Refuse tensors of a machine with numbers on one without, or back."""
    meta = simulation.backing.type == "meta"
    for x in tensors:
        if type(x) is SimTensor and x.backing.is_meta is not meta:
            raise RuntimeError(
                "a tensor of another simulated machine is of no use on this "
                f"one (device: {x.device}, backing: {simulation.backing})"
            )


def _makes_pinned(
    func: OpOverload, kwargs: dict[str, Any], device: torch.device
) -> bool:
    """Tell whether PyTorch pins what ``func`` makes, so as not to wait."""
    copies = func is aten._to_copy.default and kwargs.get("non_blocking")
    return bool(copies) and device.type == "cpu"


def _backing_of(device: torch.device) -> torch.device:
    """Return where the numbers of a tensor on ``device`` lie."""
    if device.type == "sim" or simulation.backing.type == "meta":
        return simulation.backing
    return device


def _unwrap(value: Any, seen: list[torch.Tensor]) -> Any:
    """Return ``value`` with backings; note its tensors."""
    kind = type(value)
    if kind is SimTensor:
        seen.append(value)
        return value.backing
    if kind is list or kind is tuple:
        return kind([_unwrap(item, seen) for item in value])
    if kind is dict:
        return {key: _unwrap(item, seen) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        seen.append(value)
        return plain(value)
    return value


def _wrap(out: Any, device: torch.device) -> Any:
    """Return ``out`` with every tensor in it on ``device``."""
    kind = type(out)
    if isinstance(out, torch.Tensor):
        if device.type != "sim":
            return out
        try:
            return SimTensor(out, device)
        except RuntimeError:
            check_dense(out, device)
            raise
    if kind is list or kind is tuple:
        return kind([_wrap(item, device) for item in out])
    return out


def _run_by_position(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a list operation on lists whose positions differ in device."""
    results = []
    for i in range(len(args[0])):
        column = [[a[i]] if isinstance(a, list) else a for a in args]
        results.append(_run(func, tuple(column), kwargs))
    return None if results[0] is None else [r[0] for r in results]


def _correct_aliasing(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """Let views share their base's storage; return what was written to."""
    kind, positions = alias_kind(func)
    if kind == "new":
        return out
    if kind == "view":
        if type(args[0]) is SimTensor:  # not one of a lazy layer
            out = return_and_correct_aliasing(func, args, kwargs, out)
        begun = args[0].is_inference()
        return tree_map_only(torch.Tensor, _marked, out) if begun else out
    for tensor in tensors_in(arguments(func, positions, args, kwargs)):
        _follow_backing(tensor)
    return _what_was_written(func, args, kwargs)


def _what_was_written(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the arguments that ``func`` writes to, as it returns them."""
    if not func._schema.returns:
        return None
    given = arguments(func, alias_kind(func)[1], args, kwargs)
    return given[0] if len(given) == 1 else tuple(given)


def _follow_backing(tensor: torch.Tensor) -> None:
    """Take over the backing's shape, where an operation has changed it."""
    if not isinstance(tensor, SimTensor):
        return
    backing = tensor.backing
    if tensor.shape == backing.shape and tensor.stride() == backing.stride():
        return
    try:
        simulation.memory.resize(backing)
    except torch.OutOfMemoryError:
        shape, stride = tensor.shape, tensor.stride()
        storage, offset = backing.untyped_storage(), tensor.storage_offset()
        backing.set_(storage, offset, shape, stride)
        raise
    with torch.inference_mode(tensor.is_inference()):  # to be of its kind
        reshaped = SimTensor(backing, tensor.device)
    torch._functionalize_unsafe_set(reshaped, tensor)
    tensor.data = reshaped


def _placeholder(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return something for backward to carry on with after an error.

    What ``func`` would have written to stays as it is; what it would have made
    is zeros, of its shape if that can be found.
    """
    if alias_kind(func)[0] == "written" or not func._schema.returns:
        return _what_was_written(func, args, kwargs)
    tensors = tensors_in([args, kwargs])
    first = next((t for t in tensors if not is_cpu_number(t)), tensors[0])
    given = _unwrap(args, []), _unwrap(kwargs, [])
    try:
        copies = tree_map_only(torch.Tensor, torch.clone, given)
        out = func(*copies[0], **copies[1])
    except Exception:
        out = plain(tensors[0])
    blank = tree_map_only(torch.Tensor, torch.zeros_like, out)
    with simulation.memory.paused():
        return _wrap(blank, first.device)
