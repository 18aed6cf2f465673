"""The operations that do not come to ``SimTensor.__torch_dispatch__``.

Most do, because one of their arguments is a ``SimTensor``. Those below have to
be registered with PyTorch by name:

- what makes a tensor out of nothing, such as ``zeros(…, device="sim:0")``;
- copies and reads by C++ code that bypasses Python, such as
  ``tensor(…, device=…)``;
- what PyTorch would compose of others on a device that it does not know, in
  another order of rounding than the CPU's own kernel, or not find at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dpkit.sim import as_on_cuda, pinned
from dpkit.sim.attention import attention
from dpkit.sim.charge import charge_factory, copied
from dpkit.sim.configuration import simulation
from dpkit.sim.generator_arguments import with_plain_generator
from dpkit.sim.numbering import full_device
from dpkit.sim.recurrent import gru_cell, lstm_cell
from dpkit.sim.tensor import SimTensor, plain, read_number

aten = torch.ops.aten
Kernel = Callable[..., Any]
WIDEST = torch.complex128.itemsize


def kernels() -> Iterator[tuple[str, Kernel, str]]:
    """Yield the name of each operation, its kernel and its dispatch key."""
    for name in _operations():
        composed = _has_kernel(name, "CompositeImplicitAutograd")
        if _makes_tensor(name) and not composed:
            yield name, _factory(name), "PrivateUse1"
        elif composed and _has_kernel(name, "CPU"):
            yield name, _as_on_cpu(name), "PrivateUse1"
    yield "_copy_from", _copy_from, "PrivateUse1"
    yield "_local_scalar_dense", read_number, "PrivateUse1"
    yield "scaled_dot_product_attention", attention, "AutogradPrivateUse1"
    yield "_thnn_fused_lstm_cell", lstm_cell, "AutogradPrivateUse1"
    yield "_thnn_fused_gru_cell", gru_cell, "AutogradPrivateUse1"
    yield from as_on_cuda.kernels()
    yield from pinned.kernels()


def _operations() -> list[str]:
    """Return the names of all operations, such as ``add.Tensor``."""
    names = [
        f"{schema.name}.{schema.overload_name}".rstrip(".")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    ]
    return [
        name.removeprefix("aten::")
        for name in names
        if torch._C._dispatch_has_kernel(name)
    ]


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)


def _makes_tensor(name: str) -> bool:
    """Tell whether it takes a device and has no tensor to go by."""
    kinds = {a.name: str(a.type) for a in _overload(name)._schema.arguments}
    return "device" in kinds and "Tensor" not in str(kinds)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _factory(name: str) -> Kernel:
    """Return a kernel that makes the tensor plainly, then wraps it."""
    # PyTorch's zeros without memory cannot be held by another tensor.
    func = _overload("zeros" if name == "_efficientzerotensor" else name)
    fills = not name.startswith("empty")
    keys = "Meta", "CompositeExplicitAutograd"
    known = any(_has_kernel(name, key) for key in keys)  # how large it is
    names = [argument.name for argument in func._schema.arguments]
    dense = known and "size" in names and name != "empty_strided"
    place = names.index("size") if dense else None

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        device = full_device(kwargs.pop("device"))
        if kwargs.pop("pin_memory", None):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        args, kwargs = with_plain_generator(func, args, kwargs, device)
        surely = place is not None and _surely_fits(args[place], device)
        if known and not surely:
            _check_room(func, args, kwargs, device)
        with torch.inference_mode(False):  # as in __torch_dispatch__
            backing = func(*args, device=simulation.backing, **kwargs)
        charge_factory(name, backing.nbytes, device.index, fills)
        return SimTensor(backing, device)

    return kernel


def _surely_fits(shape: Sequence[int], device: torch.device) -> bool:
    """Tell whether a tensor of any dtype fits: most do, and this is quick."""
    memory = simulation.memory
    free = memory.capacity - memory.live[device.index]
    return math.prod(shape) * WIDEST <= free


def _check_room(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
) -> None:
    """Refuse a size that does not fit before memory is taken for it."""
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    asked = func(*args, device="meta", **kwargs).untyped_storage().nbytes()
    simulation.memory.check_room(asked, device.index)


def _as_on_cpu(name: str) -> Kernel:
    """Return a kernel that keeps PyTorch from composing the operation.

    That there is one is enough: calls with a ``SimTensor`` go to its
    ``__torch_dispatch__``.
    """
    func = _overload(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return SimTensor.__torch_dispatch__(func, (), args, kwargs)

    return kernel


def _copy_from(
    source: Tensor, target: Tensor, non_blocking: bool = False
) -> Tensor:
    """Copy between two devices."""
    plain(target).copy_(plain(source), non_blocking)
    copied(source, target, non_blocking)
    return target
