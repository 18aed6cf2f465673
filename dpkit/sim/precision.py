"""In which numbers an operation computes, which decides its rate.

The dtype of its tensors is the answer for most. The others:

- float32, which tensor cores may round to "tf32": by default in convolutions,
  but not in products.
- Complex numbers, each a pair of real ones: complex64 computes in float32.
- Both kinds of float8, which have one rate. The products that take them have
  scales (``torch.nn.functional.scaled_mm``).
- CUDA has no product of other numbers, such as integers. They are refused in
  its words. What it has, and a preset does not, is refused in ``costs``.
"""

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.operations import base_name

SCALED_PRODUCTS = {
    "_scaled_mm",
    "_scaled_mm_v2",
    "_scaled_grouped_mm",
    "_scaled_grouped_mm_v2",
}
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
# Product -> what PyTorch calls its code for CUDA.
_ON_CUDA = dict.fromkeys(("mm", "addmm", "addmm_"), "addmm_cuda") | (
    dict.fromkeys(("bmm", "baddbmm", "baddbmm_"), "baddbmm_cuda")
)
_MULTIPLIED = {
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    *_REAL,
}


def compute_dtype(func: OpOverload, tensor: Tensor) -> str:
    """Return the name of the dtype that an operation computes in.

    Raises:
        NotImplementedError: CUDA has no such product.
    """
    name, dtype = base_name(func), tensor.dtype
    if name in _ON_CUDA and dtype not in _MULTIPLIED:
        kind = tensor.type().rpartition(".")[2].removesuffix("Tensor")
        raise NotImplementedError(
            f"\"{_ON_CUDA[name]}\" not implemented for '{kind}' "
            f"(operation: {name}, dtype: {dtype}, device: {tensor.device})"
        )
    if name in SCALED_PRODUCTS and str(dtype).startswith("torch.float8"):
        return "float8"
    dtype = _REAL.get(dtype, dtype)
    if dtype == torch.float32 and _rounds(name):
        return "tf32"
    return str(dtype).removeprefix("torch.")


def _rounds(name: str) -> bool:
    """Return whether an operation may round float32 to tf32."""
    backends: Any = torch.backends
    kind = backends.cuda.matmul
    if "convolution" in name:
        kind = backends.cudnn.conv
    return bool(kind.fp32_precision == "tf32")
