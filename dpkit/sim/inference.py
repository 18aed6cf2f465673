"""What ``torch.inference_mode()`` changes: its tensors know where they began.

A tensor that is made there cannot take part in autograd later, nor be written
to outside. PyTorch looks for that in the simulated tensor; its backing is an
ordinary one in either case, as what runs on it runs outside the mode.
"""

from __future__ import annotations

from functools import cache

import torch
from torch._ops import OpOverload


@cache
def comes_whole(func: OpOverload) -> bool:
    """Tell whether ``func`` comes whole in inference mode, and else in parts.

    Autograd is what takes an operation that is made of others apart, unless
    the CPU has a kernel for it; and autograd has left in that mode.
    """
    return _has_kernel(func, "CompositeImplicitAutograd") and not (
        _has_kernel(func, "CPU") or has_stand_in(func)
    )


@cache
def has_stand_in(func: OpOverload) -> bool:
    """Tell whether a function stands in for ``func`` where autograd is."""
    return _has_kernel(func, "AutogradPrivateUse1")


def _has_kernel(func: OpOverload, key: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(func.name(), key)
