"""Which class a tensor has on a simulated device, and which on the CPU.

A simulated tensor is a ``SimTensor``, also where it is a parameter: then it
has a mark, by which ``isinstance(p, nn.Parameter)`` knows it. PyTorch's
parameters and buffers without shape, those of lazy layers, stay such.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

simulated: dict[type, Any] = {}  # class on the CPU -> on a simulated device


def simulated_class(kind: type, device: torch.device) -> Any:
    """Return the class that a tensor gets on a simulated device.

    Args:
        kind: The one it has on the CPU, or a simulated one.
        device: The simulated device.

    Raises:
        NotImplementedError: it is a subclass of which nothing is known here.
    """
    if kind in simulated.values():
        return kind
    if kind not in simulated:
        raise NotImplementedError(
            "a simulated tensor has a class of its own, and takes no other "
            f"(class: {kind.__name__}, device: {device}); use torch.Tensor or "
            "nn.Parameter"
        )
    return simulated[kind]


def plain_class(tensor: torch.Tensor) -> type:
    """Return the class that a simulated tensor gets on the CPU."""
    if simulated[torch.Tensor] is type(tensor):
        is_param = isinstance(tensor, nn.Parameter)
        return nn.Parameter if is_param else torch.Tensor
    return next(k for k, sim in simulated.items() if sim is type(tensor))
