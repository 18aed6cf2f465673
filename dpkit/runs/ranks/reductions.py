"""By what ranks reduce: PyTorch's operations, in terms of dpkit's own.

One of them is NCCL's, which does in its kernel what is done at no cost here:
``PREMUL_SUM`` multiplies by a factor before it adds. FSDP2 divides its
gradients so, where it is given a factor.

Source:
    NVIDIA/nccl, src/device/reduce_kernel.h, ``FuncPreMulSum``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.kernels.uncharged import multiply

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

    The mean of integers is refused as well, which NCCL rounds towards zero.

    Args:
        tensors: What one rank gives to be reduced.
        op: The name of dpkit's operation, such as "sum" or "mean".
        factor: What is multiplied before adding; None: nothing.
        _: What else an operation is called with, which decides nothing.

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
        if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "the backend sim has no ReduceOp.AVG of integers (dtype: "
                f"{dtype}); reduce by SUM, and divide"
            )
        if factor is not None and dtype not in FRACTIONS:
            raise TypeError(
                "PreMulSum Data type must be half, float, bfloat16 or double "
                f"(dtype: {dtype})"
            )


def before_adding(tensors: Sequence[Tensor], factor: float) -> None:
    """Multiply what all give by the factor, in place."""
    if factor != 1:
        for x in tensors:
            multiply(x, factor)
