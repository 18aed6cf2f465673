"""Send tensors from one device to another, beside their work.

A copy from device to device takes its turn in the current streams of both
ends: device 1 would have to be done with what it has before device 0 could go
on. In streams of its own the copy waits only for what it sends, and holds up
only who receives it::

    device 0, work     |== F0 ==|== F1 ==|
    device 0, sending           |= x0 =| |= x1 =|
    device 1, receiving         |= x0 =| |= x1 =|
    device 1, work                     |== F0 ==|== F1 ==|
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dpkit.machine import has_streams


class Channel:
    """A way from one device to another.

    Args:
        source: Where tensors come from.
        target: Where they go to. If it is the source, nothing is copied.

    Example:
        >>> import dpkit, torch
        >>> source, target = dpkit.devices(2, kind="sim")
        >>> channel = Channel(source, target)
        >>> parcel = channel.send(torch.ones(3, device=source))
        >>> parcel.open()
        tensor([1., 1., 1.], device='sim:1')
    """

    def __init__(self, source: torch.device, target: torch.device) -> None:
        self.source, self.target = source, target
        self._streams: list[Any] = []  # one on each end
        if source != target and has_streams(source) and has_streams(target):
            self._streams = [_module(d).Stream(d) for d in (source, target)]

    def send(self, x: Tensor) -> Parcel:
        """Copy a tensor once it is ready, while both devices go on.

        Args:
            x: Tensor on the source.

        Returns:
            The copy, which :meth:`Parcel.open` waits for.
        """
        if not self._streams:
            return Parcel(x.to(self.target))
        sending, receiving = self._streams
        module = _module(self.source)
        sending.wait_stream(module.current_stream(self.source))
        with module.stream(sending), module.stream(receiving):
            copy = x.to(self.target, non_blocking=True)
        x.record_stream(sending)
        return Parcel(copy, receiving.record_event())


class Parcel:
    """A tensor on its way.

    Args:
        x: The tensor, where it is to arrive.
        arrived: The event at which it has; None: it is there.
    """

    def __init__(self, x: Tensor, arrived: Any = None) -> None:
        self._x, self._arrived = x, arrived

    def open(self) -> Tensor:
        """Let later work on the device wait for the tensor; return it."""
        if self._arrived is not None:
            stream = _module(self._x.device).current_stream(self._x.device)
            stream.wait_event(self._arrived)
            self._x.record_stream(stream)
        return self._x


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)
