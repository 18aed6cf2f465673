"""Moving a module keeps its parameters the same objects, as on CUDA.

An optimizer that was made before, and weights that two layers share, then go
along. PyTorch does so for a module that moves to simulated devices, and on the
way back if it is asked to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.__future__ import (
    get_swap_module_params_on_conversion,
    set_swap_module_params_on_conversion,
)

from dpkit.sim.tensor import SimTensor

_apply: Callable[..., Any] = nn.Module._apply


def apply_in_place(
    self: nn.Module, fn: Callable[..., Any], recurse: bool = True
) -> Any:
    """Stand in for ``Module._apply``, which ``to``, ``cpu``, … call."""
    if not any(isinstance(p, SimTensor) for p in self.parameters()):
        return _apply(self, fn, recurse)
    usual = get_swap_module_params_on_conversion()
    set_swap_module_params_on_conversion(True)
    try:
        return _apply(self, fn, recurse)
    finally:
        set_swap_module_params_on_conversion(usual)
