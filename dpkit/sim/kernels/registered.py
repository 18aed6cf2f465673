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
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dpkit.sim.containers import tensors_in
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import full_device
from dpkit.sim.kernels import fast_path, own
from dpkit.sim.kernels.attention import attention
from dpkit.sim.kernels.statistics import SYNC_BATCH_NORM
from dpkit.sim.kernels.without_values import copy_without_values
from dpkit.sim.operators.operations import (
    OpCall,
    aten,
    base_name,
    check_not_freed,
    check_readable,
)
from dpkit.sim.operators.random_numbers import check_generator
from dpkit.sim.operators.record import has_kernel, operator_of
from dpkit.sim.tensors.behaviour import plain
from dpkit.sim.tensors.charge import charge_copy, charge_factory
from dpkit.sim.tensors.storages import NOT_ON_CPU, pinned_kernels
from dpkit.sim.tensors.tensor import SimTensor, read_number

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
    for name, schema in _operations():
        composed = has_kernel(f"aten::{name}", "CompositeImplicitAutograd")
        if composed:
            if has_kernel(f"aten::{name}", "CPU"):
                yield name, _dispatching(name), "PrivateUse1"
        elif _makes_tensor(schema):
            yield name, _factory(name), "PrivateUse1"
    yield "_copy_from", _copy_from, "PrivateUse1"
    yield "_local_scalar_dense", read_number, "PrivateUse1"
    key = "AutogradPrivateUse1"
    yield "scaled_dot_product_attention", attention, key
    yield "_thnn_fused_lstm_cell", own.lstm_cell, key
    yield "_thnn_fused_gru_cell", own.gru_cell, key
    yield "ctc_loss.Tensor", own.ctc_loss, key
    attend = fast_path.multi_head_attention
    yield "_native_multi_head_attention", attend, key
    yield "_transformer_encoder_layer_fwd", fast_path.encoder_layer, key
    for_shapes = fast_path.shapes_of_heads
    yield "_transform_bias_rescale_qkv", for_shapes, "Meta"
    yield "_masked_softmax", _like_scores, "Meta"
    for func, kernel in SYNC_BATCH_NORM.items():
        yield base_name(func), kernel, "Meta"
    yield from pinned_kernels()
    yield from _autocast_kernels()


def _like_scores(scores: Tensor, *_: Any) -> Tensor:
    """Return attention weights: their shape alone, without values."""
    return torch.empty_like(scores)


def _operations() -> Iterator[tuple[str, Any]]:
    """Yield the name of each operation, such as ``add.Tensor``: its schema."""
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if name.startswith("aten::") and torch._C._dispatch_has_kernel(name):
            yield name.removeprefix("aten::"), schema


def _makes_tensor(schema: Any) -> bool:
    """Return whether it takes a device and has no tensor to go by."""
    given = schema.arguments
    takes_device = any(argument.name == "device" for argument in given)
    return takes_device and not any("Tensor" in str(a.type) for a in given)


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
    position = names.index("size") if shaped else None

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        device = full_device(kwargs.pop("device"))
        if kwargs.pop("pin_memory", None):
            raise RuntimeError(NOT_ON_CPU)
        call = OpCall(operator_of(func), args, kwargs)
        check_generator(call, device)
        if measures:
            shape = None if position is None else args[position]
            _check_room(call, shape, device)
        kwargs["device"] = simulation.backing
        backing = own.run_plain(call.operator, args, kwargs)
        fills = not name.startswith("empty")
        charge_factory(name, backing, device.index, fills)
        return SimTensor(backing, device)

    return kernel


def _check_room(
    call: OpCall, shape: Sequence[int] | None, device: torch.device
) -> None:
    """Refuse a size that does not fit before memory is taken for it."""
    operator, args, kwargs = call
    memory = simulation.memory
    free = memory.capacity - memory.live[device.index]
    if shape is not None and math.prod(shape) * _LARGEST_ITEM <= free:
        return  # it fits in any dtype
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    sized = operator.func(*args, device="meta", **kwargs)
    memory.check_room(sized.untyped_storage().nbytes(), device.index)


def _dispatching(name: str) -> Callable[..., Any]:
    """Return a kernel for what PyTorch would compose without one."""
    func = _overload(name)
    return lambda *args, **kwargs: SimTensor.__torch_dispatch__(
        func, (), args, kwargs
    )


def _copy_from(
    source: Tensor, target: Tensor, non_blocking: bool = False
) -> Tensor:
    """Copy a tensor to another, of which one is on a simulated device."""
    check_not_freed(operator_of(aten._copy_from.default), [source, target])
    if simulation.backing.type == "meta":
        copy = operator_of(aten.copy_.default)
        check_readable(OpCall(copy, (target, source), {}))
        copy_without_values(plain(source), plain(target))
    else:
        plain(target).copy_(plain(source))
    charge_copy(source, target, non_blocking=non_blocking)
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
