"""Send and receive at the same time, beside the work of a device.

A copy from device to device takes its turn in the current streams of both
ends. In a ring every device sends and receives in each step; on one stream
the second copy would wait for the first, and the third for the second, all
around. So each device has one stream to send on and one to receive on::

    device 0, sending       |= to 1 =|
    device 1, receiving     |= to 1 =|
    device 1, sending       |= to 2 =|
    device 2, receiving     |= to 2 =|

What the devices do next waits for what they have sent and received: neither
is a buffer changed while it is sent, nor read before it has arrived. (A
``Channel`` holds up only who receives: what it sends is not changed later.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpkit.machine import copy_streams, has_streams, threads_beside


@dataclass(frozen=True)
class Arrival:
    """A tensor that a device receives, and when it will be there.

    Attributes:
        x: The tensor, on the device that receives it.
        sender: The device that sends it.
        event: The event at which it has arrived; None: it is there.
    """

    x: Tensor
    sender: torch.device
    event: Any = None

    def open(self) -> Tensor:
        """Let what both devices do next wait for it; return it."""
        if self.event is not None:
            for device in (self.sender, self.x.device):
                module = torch.get_device_module(device)
                stream = module.current_stream(device)
                stream.wait_event(self.event)
            self.x.record_stream(stream)
        return self.x


def send(
    x: Tensor, target: torch.device, into: Tensor | None = None
) -> Arrival:
    """Copy a tensor to another device, beside the work of both.

    It waits for what both devices have been asked for so far, in their
    current streams. Where one of the two is a CPU, nothing runs beside.

    Args:
        x: Tensor on the device that sends.
        target: The device that receives.
        into: A tensor there of the same shape to copy into; None: a new one,
            and on the same device ``x`` itself.

    Returns:
        What arrives; :meth:`Arrival.open` waits for it.

    Example:
        >>> import dpkit, torch
        >>> from dpkit.ports import send
        >>> zero, one = dpkit.devices(2, kind="sim")
        >>> send(torch.ones(3, device=zero), one).open()
        tensor([1., 1., 1.], device='sim:1')
    """
    source = x.device
    if source == target:
        return Arrival(x if into is None else into.copy_(x), source)
    sender, receiver = copy_streams(source), copy_streams(target)
    if sender is None or receiver is None:
        copy = x.to(target) if into is None else into.copy_(x)
        return Arrival(copy, source)
    with _on(sender.sending, source), _on(receiver.receiving, target):
        if into is None:
            copy = x.to(target, non_blocking=True)
        else:
            copy = into.copy_(x, non_blocking=True)
            into.record_stream(receiver.receiving)
        x.record_stream(sender.sending)
        event = receiver.receiving.record_event()
    return Arrival(copy, source, event)


@contextmanager
def _on(stream: Any, device: torch.device) -> Iterator[None]:
    """Issue a block to a stream, after what the device has been asked for."""
    module = torch.get_device_module(device)
    stream.wait_stream(module.current_stream(device))
    with module.stream(stream):
        yield


def record(device: torch.device) -> Any:
    """Return an event at the end of what a device has so far, if it has any.

    It stands in the current stream of the device; None for a CPU.
    """
    if not has_streams(device):
        return None
    module = torch.get_device_module(device)
    return module.current_stream(device).record_event()


@contextmanager
def beside(events: Mapping[torch.device, Any]) -> Iterator[None]:
    """Issue a block beside the work of devices, on a stream of each.

    Args:
        events: What the block waits for on each device, as :func:`record`
            returns it; what the device does after that, it does not wait for.
            :func:`join` waits for the block.
    """
    found = {d: event for d, event in events.items() if event is not None}
    with ExitStack() as stack:
        stack.enter_context(threads_beside(found))
        for device, event in found.items():
            streams = copy_streams(device)
            assert streams is not None  # for it has events
            streams.beside.wait_event(event)
            module = torch.get_device_module(device)
            stack.enter_context(module.stream(streams.beside))
        yield


def join(device: torch.device) -> None:
    """Let what a device does next wait for what runs beside its work."""
    streams = copy_streams(device)
    if streams is not None:
        module = torch.get_device_module(device)
        module.current_stream(device).wait_stream(streams.beside)
