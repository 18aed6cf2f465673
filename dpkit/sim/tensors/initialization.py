"""Initialization that reads what it has drawn, where there are no values."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.devices.configuration import simulation


def drawing_once(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a ``trunc_normal_`` that draws once where there are no values.

    PyTorch's draws again until it reads that all values lie within bounds.
    """

    @wraps(original)
    def fill(
        tensor: Tensor,
        mean: float,
        std: float,
        a: float,
        b: float,
        generator: Any = None,
    ) -> Tensor:
        has_none = simulation.backing.type == "meta"
        if tensor.device.type == "sim" and has_none:
            with torch.no_grad():
                return tensor.normal_(mean, std, generator=generator)
        return original(tensor, mean, std, a, b, generator=generator)

    return fill
