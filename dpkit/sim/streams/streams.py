"""Streams and events: ``torch.sim.Stream``, ``torch.sim.Event``.

A stream executes what it is given in order. Two streams of a device wait for
each other only where the program says so, but share the device's compute::

    host       a b        returns from both at once
    stream 0   aaaaaaaa
    stream 1            bbbb   b waits for the compute, not for an event
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import local
from typing import Any

import torch

from dpkit.sim.clock.issuers import DEFAULT
from dpkit.sim.clock.queues import Work
from dpkit.sim.clock.record import SECOND
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import (
    DeviceLike,
    current_device,
    full_device,
)
from dpkit.sim.streams.sending import thread


class _Thread(local):
    """What a thread of Python has."""

    def __init__(self) -> None:
        self.entered: list[Any] = []  # blocks of streams, the last last


_thread = _Thread()


class SimStream:
    """A queue of work on a simulated device, as ``torch.cuda.Stream``.

    Without a device it is on the current one. The priority changes nothing. A
    ``number`` is that of a stream that is there.

    Example:
        >>> zero = dpkit.devices(1, "sim")[0]
        >>> side = torch.sim.Stream(zero)
        >>> with torch.sim.stream(side):
        ...     x = torch.ones(500, device=zero).cumsum(0)
        >>> torch.sim.current_stream(zero).wait_stream(side)
    """

    def __init__(
        self,
        device: DeviceLike = None,
        priority: int = 0,
        number: int | None = None,
    ) -> None:
        self.device = full_device(device)
        if number is None:
            number = simulation.clock.new_stream(self.device.index)
        self.number = number
        self.priority = priority

    @property
    def stream_id(self) -> int:
        """The number of the stream; 0 is the default stream's."""
        return self.number

    @property
    def device_index(self) -> int:
        """The number of the device."""
        return self.device.index

    @property
    def device_type(self) -> int:
        """The number of the kind of device, as C++ knows it."""
        kind: Any = torch._C._autograd.DeviceType.PrivateUse1
        return int(kind)

    def is_capturing(self) -> bool:
        """Return whether a graph of the work is being made: never."""
        return False

    def wait_stream(self, stream: "SimStream") -> None:
        """Make later work here wait for all that ``stream`` has so far."""
        self.wait_event(stream.record_event())

    def wait_event(self, event: "SimEvent") -> None:
        """Make later work here wait for ``event``."""
        clock = simulation.clock
        if event.work is not None and event.clock is clock:
            clock.mark_stream(self.device.index, self.number, event.work)
            if simulation.races is not None:
                simulation.races.wait((self.device.index, self.number), event)

    def record_event(self, event: "SimEvent | None" = None) -> "SimEvent":
        """Mark the end of what the stream has so far."""
        event = SimEvent() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Make the host wait for what the stream has so far."""
        _make_host_wait(self.device.index, self.number)

    def query(self) -> bool:
        """Return whether the stream has finished its work; see SimEvent."""
        return self.record_event().query()

    def __enter__(self) -> "SimStream":
        """Issue a block to this stream, as ``torch.sim.stream`` does."""
        block = stream(self)
        block.__enter__()
        _thread.entered.append(block)
        return self

    def __exit__(self, *error: Any) -> None:
        _thread.entered.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimStream) and (self.device, self.number) == (
            other.device,
            other.number,
        )

    def __hash__(self) -> int:
        return hash((self.device, self.number))

    def __repr__(self) -> str:
        return f"<torch.sim.Stream device={self.device} number={self.number}>"


class SimEvent:
    """A mark in a stream, as ``torch.cuda.Event``."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.enable_timing = enable_timing
        self.work: Work | None = None  # the mark, once it is recorded
        self.clock = simulation.clock  # whose mark it is
        self._device = current_device()

    @property
    def device(self) -> torch.device:
        """The device in whose stream it was recorded."""
        return torch.device("sim", self._device)

    @property
    def mark(self) -> int | None:
        """When the stream passes it, in picoseconds."""
        work = self.work
        return None if work is None else self.clock.end_of(work)

    @property
    def issued(self) -> int:
        """When the host recorded it, in picoseconds."""
        return self.work.issued if self.work else 0

    def record(self, stream: SimStream | None = None) -> None:
        """Mark the end of what ``stream``, or the current one, has so far."""
        stream = current_stream() if stream is None else stream
        self._device = stream.device.index
        self.clock = simulation.clock
        self.work = self.clock.mark_stream(self._device, stream.number)
        if simulation.races is not None:
            simulation.races.record(self, (self._device, stream.number))

    def wait(self, stream: SimStream | None = None) -> None:
        """Make later work on ``stream``, or the current one, wait for this."""
        (current_stream() if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        """Make the host wait until the stream has passed the mark."""
        if self.mark is not None:
            self.clock.hosts.wait_until(self._device, self.mark)
            if simulation.races is not None:
                simulation.races.host_waits_for(self)

    def query(self) -> bool:
        """Return whether the stream has passed the mark.

        The host asks the device, which takes a moment on the host's clock. So
        a loop that asks again and again ends, as on a GPU.
        """
        if self.work is not None:
            self.clock.poll(self._device)
        return self.is_passed()

    def is_passed(self) -> bool:
        """Return what :meth:`query` would, at no cost on the clock."""
        if self.work is None:
            return True
        done = self.clock.is_done(self.work, self._device)
        if done and simulation.races is not None:
            simulation.races.host_waits_for(self)
        return done

    def elapsed_time(self, end: "SimEvent") -> float:
        """Return the milliseconds from here to ``end``, simulated."""
        if not (self.enable_timing and end.enable_timing):
            raise ValueError(
                "both events must be made with enable_timing=True"
            )
        first = self.mark
        last = end.mark
        if first is None or last is None:
            raise RuntimeError("both events must be recorded")
        return 1e3 * (last - first) / SECOND


def wait_for_device(device: DeviceLike = None) -> None:
    """Make the host wait for all work on ``device``; None: the current one."""
    index = full_device(device).index
    if thread.rank not in (None, index):
        if thread.is_process:
            return  # as on CUDA: what others do there is not waited for
        raise RuntimeError(
            f"a rank waits for its own device alone (rank: {thread.rank}, "
            f"device: sim:{index}); dist.barrier() waits for other ranks"
        )
    _make_host_wait(index)


def _make_host_wait(device: int, stream: int | None = None) -> None:
    simulation.clock.wait(device, stream)
    if simulation.races is not None:
        simulation.races.host_waits(device, stream)


def name_stream(stream: SimStream, name: str) -> None:
    """Give a stream a name, by which timelines call it.

    A device has 32 streams and then gives them out again, as CUDA does: what
    is named twice has both names, joined by "; ".

    Example:
        >>> dpkit.sim.register()
        >>> side = torch.sim.Stream("sim:0")
        >>> dpkit.sim.name_stream(side, "sends")
        >>> with dpkit.sim.trace() as timeline, torch.sim.stream(side):
        ...     x = torch.ones(3, device="sim:0")
        >>> last = timeline.spans[-1]
        >>> last.name, last.stream.split("; ")[-1]
        ('ones', 'sends')
    """
    if not isinstance(stream, SimStream):
        raise TypeError(
            "not a stream of a simulated device (stream: "
            f"{stream!r}); torch.sim.Stream makes one"
        )
    simulation.clock.name_stream(stream.device.index, stream.number, name)


@contextmanager
def overlapped(events: Mapping[torch.device, SimEvent]) -> Iterator[None]:
    """Issue a block as overlapped communication is: by side threads.

    Each host has one side thread, which takes no time of the program's. What
    the block adds up takes no compute from the devices.

    Args:
        events: For each device an event: the side thread of its host issues
            nothing before that was recorded.

    Example:
        >>> (device,) = dpkit.devices(1, "sim")
        >>> start = torch.sim.current_stream(device).record_event()
        >>> before = dpkit.sim.now()
        >>> with dpkit.sim.overlapped({device: start}):
        ...     x = torch.ones(3, device=device)  # by another thread
        >>> dpkit.sim.now() == before
        True
    """
    since = {device.index: event.issued for device, event in events.items()}
    with simulation.whole_clock.communication_threads(since):
        yield


def default_stream(device: DeviceLike = None) -> SimStream:
    """Return the stream that a device uses by default."""
    return SimStream(device, number=DEFAULT)


def current_stream(device: DeviceLike = None) -> SimStream:
    """Return the stream that a device uses now."""
    found = full_device(device)
    return SimStream(found, number=simulation.clock.current[found.index])


@contextmanager
def stream(stream: SimStream | None) -> Iterator[None]:
    """Issue a block to ``stream``, on its device; None: to the current."""
    if stream is None:
        yield
        return
    device = simulation.current_device
    current = simulation.clock.current
    index = stream.device.index
    before = current[index]
    set_stream(stream)
    try:
        yield
    finally:
        current[index] = before
        simulation.current_device = device


def set_stream(chosen: SimStream) -> None:
    """Issue the work from now on to ``chosen``, and on its device."""
    simulation.clock.current[chosen.device.index] = chosen.number
    simulation.current_device = chosen.device.index
