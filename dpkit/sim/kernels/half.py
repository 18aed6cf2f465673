"""Products of float16 on a CPU: computed in float32, and rounded once.

The tensor cores of GPUs add up products of float16 in float32, and round the
sum. The CPU's own kernels do so too, but take up to ninety times as long as
those of float32, and some of them round in between.

The copies in float32 are no memory of the simulated device, and its clock
charges the product of float16.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from dpkit.sim.containers import tensors_in
from dpkit.sim.operators.operations import aten

_PRODUCTS = """
    addbmm addbmm_ addmm addmm_ baddbmm baddbmm_ bmm convolution
    convolution_backward mm
""".split()


def widened(values: Any) -> Any:
    """Return values with float32 in place of tensors of float16 on a CPU."""
    return tree_map_only(
        Tensor, lambda x: x.float() if _is_half(x) else x, values
    )


def _is_half(x: Tensor) -> bool:
    return x.dtype == torch.float16 and x.is_cpu


def _in_float32(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run a product, in float32 if all its tensors are float16 on a CPU."""
    if not all(map(_is_half, tensors_in([args, kwargs]))):
        return func(*args, **kwargs)  # which refuses two dtypes
    out = func(*widened(args), **kwargs)
    if func._schema.is_mutable:
        return args[0].copy_(out)  # as in addmm_
    return tree_map_only(Tensor, Tensor.half, out)


_OVERLOADS = [getattr(aten, name).default for name in _PRODUCTS]
# Operator -> what computes it.
HALF_PRODUCTS = {func: partial(_in_float32, func) for func in _OVERLOADS}
