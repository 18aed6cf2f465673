"""``torch.Stream`` and ``torch.Event``, for whatever device there is.

PyTorch makes these in C++, which does not ask a backend made in Python. So two
classes stand in for them: for a simulated device they make those of
``torch.sim``, for any other one PyTorch's own. Without a device they are for
the accelerator, which in a rank of ``dpkit.sim.launch`` is simulated.
"""

from typing import Any

import torch

from dpkit.sim.devices import names as device_names
from dpkit.sim.streams.sending import own_choice
from dpkit.sim.streams.streams import SimEvent, SimStream

_PlainStream: Any = torch.Stream
_PlainEvent: Any = torch.Event


def _device_of(asked: Any) -> torch.device:
    """Return the device that is meant; a number is one of the accelerator."""
    if asked is None:
        return own_choice()
    found = device_names.read_numbered(asked)
    if isinstance(found, int):
        return torch.device(own_choice().type, found)
    return torch.device(found)


class _StreamMaker(type(_PlainStream)):  # type: ignore[misc]
    def __call__(cls, device: Any = None, **options: Any) -> Any:
        found = _device_of(device)
        kind = SimStream if found.type == "sim" else _PlainStream
        return kind(found, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (_PlainStream, SimStream))


class AnyStream(_PlainStream, metaclass=_StreamMaker):  # type: ignore[misc]
    """A queue of work on a device."""

    __module__ = "torch"


class _EventMaker(type(_PlainEvent)):  # type: ignore[misc]
    def __call__(cls, device: Any = None, **options: Any) -> Any:
        found = _device_of(device)
        if found.type == "sim":
            return SimEvent(**options)
        return _PlainEvent(found, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (_PlainEvent, SimEvent))


class AnyEvent(_PlainEvent, metaclass=_EventMaker):  # type: ignore[misc]
    """A mark in a stream of a device."""

    __module__ = "torch"
