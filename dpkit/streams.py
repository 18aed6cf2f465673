"""Send tensors from device to device on side streams.

A copy from device to device takes its turn in the current streams of both
ends. So device 1 would have to finish its work before device 0 could go on.
Copies therefore get their own streams. Two ways to send differ in who waits.

What is sent through a :class:`Channel` is never changed afterwards, such as
the activations of a pipeline. It holds up only who receives it::

    device 0, work     |== F0 ==|== F1 ==|
    device 0, sending           |= x0 =| |= x1 =|
    device 1, receiving         |= x0 =| |= x1 =|
    device 1, work                     |== F0 ==|== F1 ==|

What :func:`send` sends is a buffer that is used again, as in a ring, where
each device has one stream to send on and one to receive on::

    device 0, sending       |= to 1 =|
    device 1, receiving     |= to 1 =|
    device 1, sending       |= to 2 =|
    device 2, receiving     |= to 2 =|

Both ends wait for it, so that no buffer is changed while it is sent, nor read
before it has arrived. Where one end is a CPU, nothing is overlapped,
except what is received from its pinned memory: the next batch, during this
step.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dpkit import sim
from dpkit.arguments import given_device
from dpkit.machine import has_streams


@dataclass(frozen=True)
class PendingTensor:
    """A tensor ``x`` that has been sent, and may not have arrived yet.

    It lies on the device that receives. ``arrived`` is the event at which it
    has arrived; None: it is there. :meth:`wait` makes the devices in
    ``waiting`` wait for that event; the last of them receives.
    """

    x: Tensor
    arrived: Any = None
    waiting: tuple[torch.device, ...] = ()

    def wait(self) -> Tensor:
        """Make later work of the devices wait for the tensor; return it."""
        for device in self.waiting:
            stream = _current(device)
            stream.wait_event(self.arrived)
        if self.waiting:
            # Made on the stream that receives; from now on this one uses it.
            self.x.record_stream(stream)
        return self.x


class Channel:
    """A connection from one device to another, with a stream on each end.

    If both are one device, nothing is copied.

    Example:
        >>> source, target = dpkit.devices(2, kind="sim")
        >>> channel = dpkit.streams.Channel(source, target)
        >>> pending = channel.send(torch.ones(3, device=source))
        >>> pending.wait()
        tensor([1., 1., 1.], device='sim:1')
    """

    def __init__(
        self, source: torch.device | str, target: torch.device | str
    ) -> None:
        self.source = source = given_device("source", source)
        self.target = target = given_device("target", target)
        self._streams: list[Any] = []
        if source != target and has_streams(source) and has_streams(target):
            self._streams = [_module(d).Stream(d) for d in (source, target)]

    def send(self, x: Tensor) -> PendingTensor:
        """Copy a tensor once it is ready, while both devices go on.

        ``x`` lies on the source. :meth:`PendingTensor.wait` waits for it.
        """
        if not self._streams:
            return PendingTensor(x.to(self.target))
        sending, receiving = self._streams
        sending.wait_stream(_current(self.source))
        copy = _copy(x, self.target, sending=sending, receiving=receiving)
        arrived = receiving.record_event()
        return PendingTensor(copy, arrived, waiting=(self.target,))


def send(
    x: Tensor, target: torch.device | str, into: Tensor | None = None
) -> PendingTensor:
    """Copy a tensor to another device, on side streams of both.

    It waits for what both devices have been asked for so far, in their
    current streams.

    Args:
        x: The tensor; its memory is kept until it has been sent.
        target: The device to which it is copied.
        into: A tensor there of the same shape, which is overwritten. None: a
            new one, or on the same device ``x`` itself.

    Example:
        >>> from dpkit.streams import send
        >>> zero, one = dpkit.devices(2, kind="sim")
        >>> send(torch.ones(3, device=zero), one).wait()
        tensor([1., 1., 1.], device='sim:1')
    """
    source = x.device
    target = given_device("target", target)
    sender = copy_streams(source)
    receiver = copy_streams(target)
    if source == target or sender is None or receiver is None:
        return PendingTensor(x.to(target) if into is None else into.copy_(x))
    sender.sending.wait_stream(_current(source))
    receiver.receiving.wait_stream(_current(target))
    copy = _copy(
        x,
        target,
        sending=sender.sending,
        receiving=receiver.receiving,
        into=into,
    )
    arrived = receiver.receiving.record_event()
    return PendingTensor(copy, arrived, waiting=(source, target))


def receive(x: Tensor, device: torch.device | str) -> Tensor:
    """Return a copy of a tensor on a device; never ``x`` itself.

    From pinned memory of the host it is made while the device works on.
    Python goes on at once, and what the device is asked for from now on waits
    for the copy. Until then nothing may be written to ``x``.

    Example:
        >>> from dpkit.streams import receive
        >>> (zero,) = dpkit.devices(1, kind="sim")
        >>> receive(torch.ones(3).pin_memory(), zero)
        tensor([1., 1., 1.], device='sim:0')
    """
    device = given_device("device", device)
    on_host = x.device.type == "cpu"
    streams = copy_streams(device) if on_host and x.is_pinned() else None
    if streams is None:
        return x.to(device, copy=True)
    with _module(device).stream(streams.receiving):
        copy = x.to(device, non_blocking=True)
    arrived = streams.receiving.record_event()
    return PendingTensor(copy, arrived, waiting=(device,)).wait()


def _copy(
    x: Tensor,
    target: torch.device,
    *,
    sending: Any,
    receiving: Any,
    into: Tensor | None = None,
) -> Tensor:
    """Copy on a stream of each end; keep the memory until it is done."""
    module = _module(target)
    with module.stream(sending), module.stream(receiving):
        if into is None:
            copy = x.to(target, non_blocking=True)
        else:
            copy = into.copy_(x, non_blocking=True)
            into.record_stream(receiving)
    # If x is freed now, its memory must not be used before it has been sent.
    x.record_stream(sending)
    return copy


class CopyStreams:
    """The side streams of a device for one channel.

    They are made when they are first asked for, those that send and receive
    together. In timelines they have the name of the channel: "tp",
    "tp, sends", "tp, receives". Without a name the first is called
    "side stream".
    """

    def __init__(self, device: torch.device, channel: str) -> None:
        self._device = device
        self._channel = channel

    @property
    def sending(self) -> Any:
        """On which :func:`send` sends."""
        return self._pair[0]

    @property
    def receiving(self) -> Any:
        """On which :func:`send` and :func:`receive` receive."""
        return self._pair[1]

    @cached_property
    def _pair(self) -> tuple[Any, Any]:
        name = self._channel
        sends = f"{name}, sends" if name else ""
        receives = f"{name}, receives" if name else ""
        return self._make(sends), self._make(receives)

    @cached_property
    def side(self) -> Any:
        """On which a block of :func:`on_side_streams` runs."""
        return self._make(self._channel or "side stream")

    def _make(self, name: str) -> Any:
        stream = _module(self._device).Stream(self._device)
        if name and self._device.type == "sim":
            sim.name_stream(stream, name)
        return stream


# For each machine: the GPUs, or the simulated devices of a configuration.
_STREAMS: WeakKeyDictionary[Any, dict[Any, CopyStreams]] = WeakKeyDictionary()


class _Thread(local):
    """The channel that this thread of Python is in: of ``on_side_streams``."""

    channel = ""


_thread = _Thread()


def copy_streams(device: torch.device) -> CopyStreams | None:
    """Return the side streams of a device for the channel that is in use.

    They are the same each time; None if the device has none.
    """
    if not has_streams(device):
        return None
    owner = sim.current_machine() if device.type == "sim" else _module(device)
    key = (device, _thread.channel)
    streams = _STREAMS.setdefault(owner, {})
    if key not in streams:
        streams[key] = CopyStreams(*key)
    return streams[key]


def record_event(device: torch.device) -> Any:
    """Return an event in a device's current stream; None for a CPU."""
    return _current(device).record_event() if has_streams(device) else None


@contextmanager
def on_side_streams(
    events: Mapping[torch.device, Any], channel: str = ""
) -> Iterator[None]:
    """Issue a block on a side stream of each device, as a context manager.

    It overlaps with the work on the devices' current streams. On each device
    it waits for an event, and for earlier blocks of the same channel.

    Args:
        events: Device -> what :func:`record_event` returned there: what the
            block needs. Devices without streams have None, and are left out.
        channel: A name. Blocks of different channels, and what :func:`send`
            sends in them, do not wait for each other.
    """
    found = {d: event for d, event in events.items() if event is not None}
    simulated = {d: e for d, e in found.items() if d.type == "sim"}
    with ExitStack() as stack:
        stack.callback(setattr, _thread, "channel", _thread.channel)
        _thread.channel = channel
        if simulated:
            stack.enter_context(sim.overlapped(simulated))
        for device, event in found.items():
            streams = copy_streams(device)
            assert streams is not None  # for it has events
            streams.side.wait_event(event)
            stack.enter_context(_module(device).stream(streams.side))
        yield


def wait_for_side_streams(device: torch.device) -> None:
    """Make later work of a device wait for its side stream.

    It waits for the blocks of :func:`on_side_streams` so far, of the channel
    that is in use.
    """
    streams = copy_streams(device)
    if streams is not None:
        _current(device).wait_stream(streams.side)


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)


def _current(device: torch.device) -> Any:
    return _module(device).current_stream(device)
