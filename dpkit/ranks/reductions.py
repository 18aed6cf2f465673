"""By what ranks reduce: PyTorch's operations, in terms of dpkit's own.

Two of them are NCCL's, which does in its kernel what is done at no cost here:

- ``PREMUL_SUM`` multiplies by a factor before it adds. FSDP2 divides its
  gradients so, where it is given a factor.
- ``AVG`` of integers is the sum, divided towards zero: -7 / 2 becomes -3.

Source:
    NVIDIA/nccl, src/device/reduce_kernel.h, ``FuncPreMulSum`` and
    ``FuncSumPostDiv``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.kernels.unpaid import divide_towards_zero, multiply

OPS = {
    "SUM": "sum",
    "AVG": "mean",
    "MAX": "max",
    "MIN": "min",
    "PRODUCT": "product",
    "PREMUL_SUM": "sum",
}


def reduction_of(asked: Any) -> dict[str, Any]:
    """Return what one of PyTorch's ``ReduceOp`` asks for, by name.

    It is the ``op`` of ``dpkit.allreduce``, and the ``factor``, if there is
    one.

    Raises:
        NotImplementedError: NCCL does not reduce so; or the factor lies in a
            tensor.
    """
    name = asked.op.name
    if name not in OPS:
        raise NotImplementedError(
            f"the backend sim does not reduce so (op: {name}, known: "
            f"{', '.join(OPS)})"
        )
    if name != "PREMUL_SUM":
        return {"op": OPS[name]}
    _, factor = asked.__getstate__()
    if isinstance(factor, Tensor):
        raise NotImplementedError(
            "the factor of PREMUL_SUM is a number on the backend sim, and no "
            f"tensor (shape: {tuple(factor.shape)}, device: {factor.device})"
        )
    return {"op": OPS[name], "factor": factor}


# NCCL's group in PyTorch does not reduce these.
UNKNOWN = {
    *(torch.uint16, torch.uint32, torch.uint64),
    *(value for name, value in vars(torch).items() if "float8_" in name),
}
FRACTIONS = {torch.half, torch.float, torch.bfloat16, torch.double}


def check_reduction(
    tensors: Sequence[Tensor], op: str, factor: float | None = None, **_: Any
) -> None:
    """Refuse the types that NCCL's group refuses, as far as in its words.

    Raises:
        TypeError: a type is not reduced, or not so.
    """
    for dtype in {x.dtype for x in tensors}:
        if dtype in UNKNOWN:
            raise TypeError(
                "Input tensor data type is not supported for reductions by "
                f"NCCL, nor by the backend sim (dtype: {dtype})"
            )
        if op == "mean" and dtype == torch.bool:
            raise TypeError("Cannot use ReduceOp.AVG with bool inputs")
        if factor is not None and dtype not in FRACTIONS:
            raise TypeError(
                "PreMulSum Data type must be half, float, bfloat16 or double "
                f"(dtype: {dtype})"
            )


# The three steps of a reduction. A factor of 1/2, and the mean of integers:
#
#     given          4  6            -4 -3
#     before adding  2  3            -4 -3
#     added             5               -7
#     after adding      5               -3


def before_adding(tensors: Sequence[Tensor], factor: float) -> None:
    """Multiply what all give by the factor, in place."""
    if factor != 1:
        for x in tensors:
            multiply(x, factor)


def to_add_by(op: str, dtype: torch.dtype) -> str:
    """Return the op of dpkit by which tensors are added up."""
    return "sum" if op == "mean" and _is_whole(dtype) else op


def after_adding(op: str, sums: Sequence[Tensor], count: int) -> None:
    """Divide sums of integers by the number of ranks, in place."""
    if op == "mean" and _is_whole(sums[0].dtype):
        for x in sums:
            divide_towards_zero(x, count)


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)
