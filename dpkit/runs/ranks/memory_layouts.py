"""Which tensors a process group sends: their types, how they lie in memory.

NCCL sends a piece of memory, so PyTorch refuses tensors with gaps::

    x              0 1 2 3 4 5      contiguous
    x[::2]         0   2   4        has gaps: refused
    x.view(2, 3).t()                has none, but another order: only among
                                    several tensors, which are copied first
"""

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from dpkit.sim.containers import tensors_in
from dpkit.sim.memory import has_no_gaps

# NCCL has no such types. What it does not reduce is in ``reductions``.
_NOT_SENT = {torch.int16, torch.uint16, torch.uint32, torch.uint64}


def check_dtypes(tensors: Any) -> None:
    """Raise TypeError for tensors whose types NCCL's group refuses to send."""
    for x in tensors_in(tensors):
        if x.device.type == "sim" and x.dtype in _NOT_SENT:
            raise TypeError(
                "Input tensor data type is not supported for NCCL process "
                f"group (dtype: {x.dtype}); x.int() and x.long() are sent"
            )


def check_layouts(tensors: Any) -> None:
    """Raise ValueError for tensors that NCCL's group refuses to send.

    A rank contributes one list of tensors, or a pair: what it takes, and what
    it gives.
    """
    parts = tensors if isinstance(tensors, tuple) else (tensors,)
    for part in map(tensors_in, parts):
        for x in part:
            fits = _is_in_order if len(part) == 1 else has_no_gaps
            if x.device.type == "sim" and not fits(x):
                raise ValueError(
                    "Tensors must be contiguous (shape: "
                    f"{tuple(x.shape)}, strides: {x.stride()}); "
                    "x.contiguous() copies one"
                )


def _is_in_order(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=suggest_memory_format(x))
