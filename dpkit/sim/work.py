"""What an operation costs a device: launches, arithmetic, traffic.

Arithmetic is counted by the formulas of PyTorch's own flop counter; traffic
is what the operation reads and what it writes, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from dpkit.sim.placement_rules import tensors_in
from dpkit.sim.schemas import alias_kind

aten = torch.ops.aten

# They make or rename memory, and launch nothing.
NO_KERNEL = {
    "_unsafe_view",
    "alias",
    "detach",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
}

# They read rows here and there: as much as they write, not the whole table.
READS_WHAT_IT_WRITES = {
    "embedding",
    "gather",
    "index",
    "index_select",
    "take",
}

# Their result's shape, or the number that Python goes on with, depends on the
# data: the host waits for it.
WAITS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
MASKS = (torch.bool, torch.uint8)

_CONVOLUTIONS = {"convolution", "convolution_backward", "_convolution"}


@cache
def base_name(func: OpOverload) -> str:
    """Return the name without "aten::" and overload: "add_", "mm"."""
    return str(func._schema.name).partition("::")[2]


@cache
def launches_kernel(func: OpOverload) -> bool:
    """Tell whether the device has something to do."""
    return alias_kind(func)[0] != "view" and base_name(func) not in NO_KERNEL


@cache
def _may_wait(func: OpOverload) -> bool:
    return base_name(func) in INDEXING or any(t in func.tags for t in WAITS)


def host_waits(func: OpOverload, args: Sequence[Any]) -> bool:
    """Tell whether the host has to wait for what comes out."""
    if not _may_wait(func):
        return False
    if base_name(func) not in INDEXING:
        return True
    masks = [m for m in args[1] if m is not None and m.dtype in MASKS]
    # x[mask] = 5 fills where the mask is true, without counting them.
    fills = base_name(func) != "index" and args[2].numel() == 1
    return bool(masks) and not fills


def num_launches(func: OpOverload, args: Sequence[Any]) -> int:
    """Return how many kernels the host launches."""
    if func is aten.convolution_backward.default:
        return sum(args[-1])
    return 1


def flops(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any
) -> int:
    """Return the additions and multiplications in an operation.

    Where PyTorch counts none, such as in a sum, traffic decides.
    """
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return 0
    return int(formula(*args, **kwargs, out_val=out))


def num_bytes(func: OpOverload, inputs: Sequence[Tensor], written: Any) -> int:
    """Return the bytes that an operation reads and writes.

    Args:
        func: The operation.
        inputs: The tensors that it is given.
        written: The tensor or tensors that it makes or writes to.
    """
    if isinstance(written, Tensor):
        total = written.nbytes
    else:
        total = sum(x.nbytes for x in tensors_in(written))
    if base_name(func) in READS_WHAT_IT_WRITES:
        return 2 * total
    if base_name(func) in ("zero_", "fill_"):
        return total
    return total + sum(x.nbytes for x in inputs)


def compute_dtype(func: OpOverload, tensor: Tensor) -> str:
    """Return the name of the dtype that an operation computes in.

    Where PyTorch lets tensor cores round float32 to TF32, that is "tf32":
    in convolutions unless told otherwise, in products if told so.
    """
    if tensor.dtype != torch.float32:
        return str(tensor.dtype).removeprefix("torch.")
    kind: Any = torch.backends.cuda.matmul
    if base_name(func) in _CONVOLUTIONS:
        cudnn: Any = torch.backends.cudnn
        kind = cudnn.conv
    return "tf32" if kind.fp32_precision == "tf32" else "float32"
