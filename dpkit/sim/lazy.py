"""Layers that learn their shape from the first batch: ``nn.LazyLinear(10)``.

Until then PyTorch gives them tensors without numbers, which have a class of
their own. On a simulated device these are simulated tensors as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from dpkit.sim.classes import simulated
from dpkit.sim.tensor import SimTensor

_ARGUMENTS = ("requires_grad", "device", "dtype", "persistent")


class SimUninitializedParameter(UninitializedParameter, SimTensor):
    """A parameter on a simulated device whose shape is not known yet."""

    cls_to_become = SimTensor

    def __reduce_ex__(self, protocol: Any) -> Any:
        return UninitializedParameter, (self.requires_grad,)


class SimUninitializedBuffer(UninitializedBuffer, SimTensor):
    """A buffer on a simulated device whose shape is not known yet."""

    cls_to_become = SimTensor

    @classmethod
    def __torch_function__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Keep the class in what ``func`` makes, as PyTorch's own does."""
        out = super().__torch_function__(func, types, args, kwargs)
        is_tensor = isinstance(out, torch.Tensor)
        return out.as_subclass(UninitializedBuffer) if is_tensor else out

    def __reduce_ex__(self, protocol: Any) -> Any:
        return UninitializedBuffer, (self.requires_grad,)


simulated[UninitializedParameter] = SimUninitializedParameter
simulated[UninitializedBuffer] = SimUninitializedBuffer


def making(kind: Any) -> Callable[[Any], Callable[..., Any]]:
    """Return what makes, of the ``__new__`` of a ``kind``, one for sim too."""
    return partial(_with_simulated, kind)


def _with_simulated(kind: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes a ``kind``, also on a simulated device.

    Args:
        kind: The class.
        make: Its ``__new__``, which makes one on any other device.
    """

    def new(cls: type[torch.Tensor], *args: Any, **options: Any) -> Any:
        options |= zip(_ARGUMENTS, args)
        dtype = options.get("dtype")
        nothing = torch.empty(0, device=options.get("device"), dtype=dtype)
        if not isinstance(nothing, SimTensor):
            return make(cls, **options)
        made = make(kind, **{**options, "device": "cpu"})
        made.data = nothing
        return made

    return new
