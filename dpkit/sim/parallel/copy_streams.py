"""The streams that bring parts of a tensor from the CPU: one for each device.

They belong to a simulated machine, and go with its clock.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch

from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import full_device
from dpkit.sim.streams.streams import SimStream

_streams: Any = WeakKeyDictionary()  # clock -> the number of a device -> one


def copying(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``_get_stream`` of ``torch.nn.parallel`` for both kinds."""

    @wraps(original)
    def get_stream(device: torch.device) -> Any:
        if device.type != "sim":
            return original(device)
        number = full_device(device).index
        streams = _streams.setdefault(simulation.clock, {})
        if number not in streams:
            streams[number] = SimStream(device)
        return streams[number]

    return get_stream
