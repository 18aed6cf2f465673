"""The operations that do not come to ``SimTensor.__torch_dispatch__``.

Most do, because one of their arguments is a ``SimTensor``. These have to be
registered with PyTorch by name:

- what makes a tensor from no other, such as ``zeros(…, device="sim:0")``;
- copies and reads by C++ code that bypasses Python, such as
  ``tensor(…, device=…)``;
- what PyTorch would compose of others on a device that it does not know, in
  another order of rounding than the CPU's own kernel, or not find at all;
- what casts under ``torch.autocast("sim", torch.bfloat16)``.

Autocast has CUDA's rules: ``_LOWER`` takes its inputs in the lower precision,
``_FLOAT32`` would lose too much there, ``_WIDEST`` takes them in the widest.
Source: PyTorch's documentation of torch.amp, "CUDA Op-Specific Behavior".
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dpkit.sim.behaviour import plain
from dpkit.sim.charge import charge_copy, charge_factory
from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import full_device
from dpkit.sim.kernels import own
from dpkit.sim.kernels.without_numbers import (
    copy_without_numbers,
    make_without_numbers,
)
from dpkit.sim.memory import tensors_in
from dpkit.sim.operations import (
    OpCall,
    aten,
    check_readable,
    check_there,
    has_kernel,
)
from dpkit.sim.random_numbers import check_generator
from dpkit.sim.storages import NOT_ON_CPU, pinned_kernels
from dpkit.sim.tensor import SimTensor, read_number

# Name of an operation, its kernel, its dispatch key.
_Registered = tuple[str, Callable[..., Any], str]
_LARGEST_ITEM = torch.complex128.itemsize

AUTOCAST = "AutocastPrivateUse1"
_LOWER = """
    addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d convolution gru_cell
    linalg_multi_dot linear lstm_cell matmul mm mv prelu
    scaled_dot_product_attention
""".split()
_FLOAT32 = """
    acos asin binary_cross_entropy_with_logits cdist cosh
    cosine_embedding_loss cosine_similarity cross_entropy_loss cumprod cumsum
    dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss
    layer_norm log log10 log1p log2 log_softmax margin_ranking_loss mse_loss
    multi_margin_loss multilabel_margin_loss nll_loss norm pdist
    poisson_nll_loss pow prod reciprocal renorm rsqrt sinh smooth_l1_loss
    soft_margin_loss softmax softplus sum tan triplet_margin_loss
""".split()
_WIDEST = """
    addcdiv addcmul atan2 bilinear cat cross dot grid_sampler index_put
    scatter_add stack tensordot
""".split()


def aten_kernels() -> Iterator[_Registered]:
    """Yield all kernels that simulated devices register for aten."""
    for name in _operations():
        composed = has_kernel(f"aten::{name}", "CompositeImplicitAutograd")
        if _makes_tensor(name) and not composed:
            yield name, _factory(name), "PrivateUse1"
        elif composed and has_kernel(f"aten::{name}", "CPU"):
            yield name, _dispatching(name), "PrivateUse1"
    yield "_copy_from", _copy_from, "PrivateUse1"
    yield "_local_scalar_dense", read_number, "PrivateUse1"
    key = "AutogradPrivateUse1"
    yield "scaled_dot_product_attention", own.attention, key
    yield "_thnn_fused_lstm_cell", own.lstm_cell, key
    yield "_thnn_fused_gru_cell", own.gru_cell, key
    yield "ctc_loss.Tensor", own.ctc_loss, key
    yield from pinned_kernels()
    yield from _autocast_kernels()


def _operations() -> list[str]:
    """Return the names of all operations, such as ``add.Tensor``."""
    schemas = torch._C._jit_get_all_schemas()
    names = [f"{s.name}.{s.overload_name}".rstrip(".") for s in schemas]
    return [
        name.removeprefix("aten::")
        for name in names
        if name.startswith("aten::") and torch._C._dispatch_has_kernel(name)
    ]


def _makes_tensor(name: str) -> bool:
    """Return whether it takes a device and has no tensor to go by."""
    kinds = {a.name: str(a.type) for a in _overload(name)._schema.arguments}
    return "device" in kinds and "Tensor" not in str(kinds)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _factory(name: str) -> Callable[..., Tensor]:
    """Return a kernel that makes the tensor plainly, then wraps it."""
    # name      the operation, such as "zeros"
    # func      what makes the plain tensor, the backing
    # measures  whether torch can tell the size before it takes memory
    # place     the position of the shape, where there is one: if it fits in
    #           the largest dtype, it fits, and that is quick to see
    #
    # PyTorch's zeros without memory cannot be held by another tensor.
    func = _overload("zeros" if name == "_efficientzerotensor" else name)
    keys = "Meta", "CompositeExplicitAutograd"
    measures = any(has_kernel(f"aten::{name}", key) for key in keys)
    names = [argument.name for argument in func._schema.arguments]
    shaped = measures and "size" in names and name != "empty_strided"
    place = names.index("size") if shaped else None

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        device = full_device(kwargs.pop("device"))
        if kwargs.pop("pin_memory", None):
            raise RuntimeError(NOT_ON_CPU)
        call = OpCall(func, args, kwargs)
        check_generator(call, device)
        if measures:
            shape = None if place is None else args[place]
            _check_room(call, shape, device)
        is_meta = simulation.backing.type == "meta"
        run = partial(make_without_numbers, func) if is_meta else func
        with torch.inference_mode(False):  # as in __torch_dispatch__
            backing = run(*args, device=simulation.backing, **kwargs)
        fills = not name.startswith("empty")
        charge_factory(name, backing, device.index, fills)
        return SimTensor(backing, device)

    return kernel


def _check_room(
    call: OpCall, shape: Sequence[int] | None, device: torch.device
) -> None:
    """Refuse a size that does not fit before memory is taken for it."""
    func, args, kwargs = call
    memory = simulation.memory
    free = memory.capacity - memory.live[device.index]
    if shape is not None and math.prod(shape) * _LARGEST_ITEM <= free:
        return  # it fits in any dtype
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    asked = func(*args, device="meta", **kwargs).untyped_storage().nbytes()
    memory.check_room(asked, device.index)


def _dispatching(name: str) -> Callable[..., Any]:
    """Return a kernel for what PyTorch would compose without one."""
    func = _overload(name)
    return lambda *args, **kwargs: SimTensor.__torch_dispatch__(
        func, (), args, kwargs
    )


def _copy_from(
    source: Tensor, target: Tensor, non_blocking: bool = False
) -> Tensor:
    """Copy between two devices."""
    check_there(aten._copy_from.default, [source, target])
    if simulation.backing.type == "meta":
        check_readable(OpCall(aten.copy_.default, (target, source), {}))
        copy_without_numbers(plain(source), plain(target))
    else:
        plain(target).copy_(plain(source))  # see _unwrap in tensor.py
    charge_copy(source, target, non_blocking)
    return target


def _autocast_kernels() -> Iterator[_Registered]:
    rules = {"lower": _LOWER, "float32": _FLOAT32, "widest": _WIDEST}
    for rule, names in rules.items():
        for name in names:
            for overload in getattr(aten, name).overloads():
                func = getattr(getattr(aten, name), overload)
                known = torch._C._dispatch_has_kernel(func.name())
                if known and not overload.endswith("out"):
                    short = func.name().removeprefix("aten::")
                    yield short, _casting(func, rule), AUTOCAST


def _casting(func: Any, rule: str) -> Callable[..., Any]:
    """Return a kernel that casts, then calls ``func`` without casting."""
    key = getattr(torch._C.DispatchKey, AUTOCAST)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = _dtype(rule, [args, kwargs])

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(dtype) if _may_change(tensor) else tensor

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            args, kwargs = tree_map_only(Tensor, cast, (args, kwargs))
            return func(*args, **kwargs)

    return kernel


def _dtype(rule: str, values: Any) -> torch.dtype:
    """Return the dtype that a rule casts to."""
    # "widest" of float16 and float16: float16; of float16 and float32,
    # or without a floating tensor: float32.
    if rule == "lower":
        return torch.get_autocast_dtype("sim")
    dtypes = set()
    if rule == "widest":
        dtypes = {t.dtype for t in tensors_in(values) if _may_change(t)}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32


def _may_change(tensor: Tensor) -> bool:
    """Return whether autocast touches a tensor: not doubles, not integers."""
    return (
        tensor.device.type == "sim"
        and tensor.is_floating_point()
        and tensor.dtype != torch.float64
    )
