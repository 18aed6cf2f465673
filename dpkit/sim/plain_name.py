"""Plain ``"sim"`` is the current device, also where C++ reads the name.

PyTorch's C++ asks a backend for its current device, and takes ``sim:0`` for
the answer of one that is made in Python: ``x.to("sim")`` would go there,
whatever ``torch.sim.set_device`` said. So what reads a device in C++ is given
one with a number. All else leaves the name as it is until ``dpkit.sim`` reads
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

from dpkit.sim.numbering import full_device

METHODS = ("to", "new_tensor")
FUNCTIONS = ("tensor", "as_tensor", "asarray")


def numbered(value: Any) -> Any:
    """Return a device with its number for plain sim, all else as it is."""
    kind = type(value)
    if kind is torch.device:
        plain = value.type == "sim" and value.index is None
    else:
        plain = kind is str and value == "sim"
    return full_device(value) if plain else value


def numbering(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that numbers the device that it is given."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = numbered(kwargs["device"])
        return original(*map(numbered, args), **kwargs)

    return call


def _device_of(context: _device.DeviceContext) -> Any:
    return numbered(vars(context)["device"])


def _keep_device(context: _device.DeviceContext, device: Any) -> None:
    vars(context)["device"] = device


# The device of ``with torch.device("sim"):`` is kept by its name, and read
# with its number.
device_of_block = property(_device_of, _keep_device)
