"""In which numbers an operation computes, and by which kernel: its rate.

The dtype of its tensors is the answer for most. The others:

- float32, which tensor cores may round to "tf32": by default in convolutions,
  but not in products.
- Complex numbers, each a pair of real ones: complex64 computes in float32.
- Both kinds of float8, which have one rate. The products that take them have
  scales (``torch.nn.functional.scaled_mm``).

What no preset has a rate for, such as products of integers, is refused in
``costs``. CUDA has no such products either.

The kernel matters for convolutions, of which there are two classes, and for
attention.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.operators.flops import attention_kind
from dpkit.sim.operators.operations import OpCall, base_name

SCALED_PRODUCTS = {
    "_scaled_mm",
    "_scaled_mm_v2",
    "_scaled_grouped_mm",
    "_scaled_grouped_mm_v2",
}
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
# Convolution -> the places of its weight, and of its stride and what follows:
# stride, padding, dilation, transposed, output padding, groups.
_CONVOLUTIONS = {
    "convolution": (1, 3),
    "_convolution": (1, 3),
    "convolution_backward": (2, 4),
}
_FAST_KERNELS = ((3, 3), (5, 5))


def compute_dtype(name: str, tensor: Tensor) -> str:
    """Return the name of the dtype that an operation computes in.

    Args:
        name: That of its operator, such as "mm".
        tensor: The first of the tensors that it is given.
    """
    dtype = tensor.dtype
    if name in SCALED_PRODUCTS and str(dtype).startswith("torch.float8"):
        return "float8"
    dtype = _REAL.get(dtype, dtype)
    if dtype is torch.float32:
        return "tf32" if _rounds(name) else "float32"
    return str(dtype).removeprefix("torch.")


def _rounds(name: str) -> bool:
    """Return whether an operation may round float32 to tf32."""
    backends: Any = torch.backends
    kind = backends.cuda.matmul
    if "convolution" in name:
        kind = backends.cudnn.conv
    return bool(kind.fp32_precision == "tf32")


def rate_of(func: OpOverload) -> Callable[[OpCall, bool], str] | None:
    """Return how to tell the kind of kernel that ``costs`` has a rate for.

    From the call, and whether a CPU is simulated. None: it is a product.
    """
    name = base_name(func)
    attention = attention_kind(func)
    if name in _CONVOLUTIONS:
        return partial(_convolution_class, *_CONVOLUTIONS[name])
    if attention and not attention.startswith("cpu"):
        return partial(_kernel_of_attention, attention)
    return None


def _convolution_class(weight: int, first: int, call: OpCall, _: bool) -> str:
    """Return "fast" or "other" for a convolution.

    For the fast ones, libraries have algorithms with fewer multiplications
    than are counted.
    """
    # weight          stride  dilation  groups  class
    # (64, 32, 3, 3)    1        1        1     fast
    # (64, 32, 3, 3)    2        1        1     other
    # (64, 32, 1, 1)    1        1        1     other
    # (64, 1, 3, 3)     1        1        64    other
    stride, _, dilation, transposed, _, groups = call.args[first : first + 6]
    square = tuple(call.args[weight].shape[2:]) in _FAST_KERNELS
    plain = {*stride, *dilation, groups} == {1} and not transposed
    return "fast" if square and plain else "other"


def _kernel_of_attention(kernel: str, _: OpCall, on_cpu: bool) -> str:
    """Return which kernel of a GPU it is; a CPU computes as in products."""
    return "" if on_cpu else kernel
