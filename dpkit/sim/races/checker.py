"""What is noted of a program, what that orders, and what is a race.

The memory of a tensor has a list of its accesses, by bytes: two slices of a
buffer are different memory. Two accesses are a race if one of them writes and
the first is not in the past of the second. Pasts go on where

- a stream waits for an event, or the host for a stream or an event;
- the host issues an operation: all that the host has waited for comes before;
- a copy between two devices runs: both current streams wait for each other;
- a collective of a library runs: the streams of all its devices do;
- hosts meet;
- backward goes from stream to stream (``autograd``).

Memory that is freed goes back to the stream in which it was made, as with
PyTorch's allocator on CUDA. Whatever is made there next may get it. Until
then all its accesses have to be in the past of that stream. Exempt are those
that were, when the memory was freed, in the past of a stream that
``record_stream`` has named: the allocator then waits for that stream.

What was done before the trace is not known, and counts as done.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dpkit.sim.clock.clock import Clock
from dpkit.sim.clock.order import HappensBefore, Past
from dpkit.sim.clock.queues import Stream
from dpkit.sim.clock.record import Race, Row, Use
from dpkit.sim.containers import tensors_in
from dpkit.sim.operators.operations import OpCall, written
from dpkit.sim.places import SourcePlace, here
from dpkit.sim.races.autograd import AutogradStreams
from dpkit.sim.races.extents import extent_of
from dpkit.sim.races.host import HostWatch
from dpkit.sim.races.shadows import Access, Issued, Shadow, use

HOST = "host", "python"  # the row of a timeline
_ON_HOST = Tensor, torch.nn.Parameter  # others have tensors inside


class Races:
    """Follows what is ordered on the devices of a clock; finds races."""

    def __init__(self, clock: Clock) -> None:
        self.found: list[Race] = []
        self._clock = clock
        hosts = clock.hosts.python
        self._order = HappensBefore(len(hosts.times), hosts.of)
        self._autograd = AutogradStreams(self._order)
        self._events: WeakKeyDictionary[Any, Past] = WeakKeyDictionary()
        self._memories: dict[int, Shadow] = {}
        self._on_host: set[int] = set()  # the keys of those on the CPU
        # Memory that is gone, and where in the program; and what of it the
        # stream in which it was made has not given away again.
        self._gone: deque[tuple[Shadow, SourcePlace]] = deque()
        self._free: dict[Stream, list[tuple[Shadow, SourcePlace]]] = {}

    # -- what runs

    def ran(
        self, call: OpCall, inputs: Sequence[Tensor], out: Any, device: int
    ) -> None:
        """Note an operation of PyTorch on a device, after it has run.

        Args:
            call: The operation with its arguments.
            inputs: The simulated tensors among these.
            out: What it has returned.
            device: The number of the device.
        """
        self.flush()
        operator = call.operator
        made = tensors_in(out) if operator.kind == "new" else []
        if not operator.launches:
            self.made(made, device)
            return
        writes = written(call)
        to = {id(x) for x in writes}
        reads = [x for x in inputs if id(x) not in to and _is_simulated(x)]
        for x in reads:
            self._memory_of(x)  # known now, so what shares it is not new
        if operator.asks_form:
            reads = []
        self.used(
            operator.name, device, reads=reads, writes=writes + made, made=made
        )

    def used(
        self,
        name: str,
        device: int,
        *,
        reads: Iterable[Tensor],
        writes: Iterable[Tensor] = (),
        made: Iterable[Tensor] = (),
    ) -> None:
        """Note an operation on the current stream of a device.

        Args:
            name: What a race calls it.
            device: The number of the device.
            reads: The tensors that it reads.
            writes: Those that it writes to.
            made: Those that it has made, whose memory may be new.
        """
        self.made(made, device)
        operation = self._issue(name, [device])[device]
        for x in reads:
            self._access(x, operation, writes=False)
        for x in writes:
            self._access(x, operation, writes=True)

    def made(self, tensors: Iterable[Tensor], device: int) -> None:
        """Note memory of the current stream of a device, if it is new."""
        self.flush()
        owner = self._stream(device)
        for x in tensors:
            self._memory_of(x, owner)

    def copied(self, source: Tensor, target: Tensor, is_new: bool) -> None:
        """Note a copy between devices; one of the ends may be the host."""
        ends = source, target
        devices = [x.device.index for x in ends if _is_simulated(x)]
        if is_new and _is_simulated(target):
            self.made([target], target.device.index)
        issued = self._issue(f"copy to {target.device}", devices)
        for x, writes in zip(ends, (False, True)):
            device = x.device.index if _is_simulated(x) else devices[0]
            self._access(x, issued[device], writes=writes)
            if not _is_simulated(x):
                self._on_host.add(x.untyped_storage()._cdata)

    def met(
        self, name: str, tensors: Sequence[Tensor], written: Iterable[int]
    ) -> None:
        """Note a collective, which is one kernel on each device.

        It writes to those of the tensors whose places are ``written``.
        """
        of_written = set(written)
        issued = self._issue(name, [x.device.index for x in tensors])
        for i, x in enumerate(tensors):
            operation = issued[x.device.index]
            self._access(x, operation, writes=i in of_written)

    # -- what orders

    def record(self, event: Any, stream: Stream) -> None:
        """Note an event at the end of what a stream has so far."""
        self.flush()
        self._events[event] = dict(self._order.past(stream))

    def wait(self, stream: Stream, event: Any) -> None:
        """Note that a stream waits for an event."""
        self.flush()
        self._order.stream_waits(stream, self._events.get(event, {}))

    def host_waits(self, device: int, stream: int | None = None) -> None:
        """Note that a host waits for a stream of its device, or for all."""
        self.flush()
        past = (
            self._order.past_of_device(device)
            if stream is None
            else self._order.past((device, stream))
        )
        self._order.host_waits(device, past)

    def host_waits_for_issued(self, device: int) -> None:
        """Note that a host waits for what it has just issued to a device."""
        stream = self._stream(device)
        self._order.host_waits(device, self._order.past(stream))

    def host_waits_for(self, event: Any) -> None:
        """Note that a host has waited for an event, or asked if it is over."""
        self.flush()
        past = self._events.get(event, {})
        self._order.host_waits(event.device.index, past)

    def meet(self, devices: Sequence[int]) -> None:
        """Note that hosts wait for each other."""
        self.flush()
        self._order.join_hosts(devices)

    def begin_backward(self) -> None:
        """Note that autograd issues from now on."""
        self._autograd.begin_backward(self._clock.current)

    def end_backward(self) -> None:
        """Note that the program issues again."""
        self.flush()
        self._autograd.end_backward()

    # -- memory

    def record_stream(self, tensor: Tensor, stream: Stream) -> None:
        """Note that memory is not given away before a stream is done."""
        self.flush()
        self._memory_of(tensor).recorded.add(stream)

    def resized(self, storage: torch.UntypedStorage, device: int) -> None:
        """Note that a storage has given its memory back, and got another."""
        self.flush()
        memory = self._memories.pop(storage._cdata, None)
        if memory is not None:
            self._give_back(memory, here())
        if storage.nbytes():
            self._remember(storage, self._stream(device))

    def flush(self) -> None:
        """Look at the memory that is gone, before anything else is noted."""
        while self._gone:
            memory, place = self._gone.popleft()
            if self._memories.get(memory.key) is memory:
                del self._memories[memory.key]
                self._on_host.discard(memory.key)
                self._give_back(memory, place)

    # -- the host

    def watching_host(self) -> AbstractContextManager[Any]:
        """Look in a block at what PyTorch does on the CPU, in this thread."""
        return HostWatch(self._host_ran)

    def _host_ran(self, call: OpCall) -> None:
        """Note an operation, unless it is one that a device runs."""
        operator = call.operator
        if not self._on_host or not operator.launches:
            return
        given = tensors_in([call.args, call.kwargs])
        if any(type(x) not in _ON_HOST or not x.is_cpu for x in given):
            return
        self.flush()
        to = {id(x) for x in written(call)}
        if operator.asks_form:
            given = []
        for x in given:
            if x.untyped_storage()._cdata in self._on_host:
                self._check_on_host(operator.name, x, id(x) in to)

    def _check_on_host(self, name: str, x: Tensor, writes: bool) -> None:
        """Find accesses by devices that the host has not waited for."""
        for old in self._memory_of(x).accesses:
            stream = old.operation.stream
            past = self._order.past_of_host(stream[0])
            if x.numel() and old.races(writes, extent_of(x), past):
                what = "writes" if writes else "reads"
                self._tell(old, use(what, name, HOST, here()))
                self._order.host_waits(stream[0], _up_to(old))

    # -- inside

    def _issue(self, name: str, devices: Sequence[int]) -> dict[int, Issued]:
        """Number an operation in the stream of each device."""
        self.flush()
        streams = [self._stream(device) for device in devices]
        past = self._order.issue(streams)
        place = here()
        if self._clock.cluster.accelerator.synchronous:
            for device in devices:
                self._order.host_waits(device, past)
        return {
            stream[0]: Issued(name, place, stream, past[stream])
            for stream in streams
        }

    def _stream(self, device: int) -> Stream:
        return self._autograd.of(device, self._clock.current[device])

    def _memory_of(self, x: Tensor, owner: Stream | None = None) -> Shadow:
        """Return the memory of a tensor; if it is new, ``owner`` made it."""
        storage = x.untyped_storage()
        memory = self._memories.get(storage._cdata)
        return memory or self._remember(storage, owner)

    def _remember(
        self, storage: torch.UntypedStorage, owner: Stream | None
    ) -> Shadow:
        if owner is not None:
            self._check_free(owner)
        memory = Shadow(storage, self._note_gone)
        memory.key = storage._cdata
        memory.owner = owner
        memory.accesses = []
        memory.recorded = set()
        self._memories[memory.key] = memory
        return memory

    def _note_gone(self, memory: Any) -> None:
        # This may come at any moment, also in the middle of what is above.
        self._gone.append((memory, here()))

    def _access(self, x: Tensor, operation: Issued, writes: bool) -> None:
        """Note an access, and find those that it races with."""
        if not x.numel():
            return
        memory = self._memory_of(x)
        past = self._order.past(operation.stream)
        new = Access(operation, writes, extent_of(x))
        kept = []
        for old in memory.accesses:
            if old.races(writes, new.extent, past):
                self._tell(old, new.use(self._row_of(new)))
                # One missing wait is one race: it is taken for mended.
                self._order.stream_waits(operation.stream, _up_to(old))
            if not new.replaces(old, past):
                kept.append(old)
        memory.accesses = [*kept, new]

    def _give_back(self, memory: Shadow, place: SourcePlace) -> None:
        """Give memory back to the stream in which it was made."""
        # The allocator waits for these streams, as far as they are now.
        awaited = [self._order.past(stream) for stream in memory.recorded]
        memory.accesses = [
            access
            for access in memory.accesses
            if not any(map(access.operation.is_in, awaited))
        ]
        if memory.owner is not None:
            self._free.setdefault(memory.owner, []).append((memory, place))

    def _check_free(self, owner: Stream) -> None:
        """Find accesses to what a stream gives away that may not be over."""
        past = self._order.past(owner)
        for memory, place in self._free.pop(owner, []):
            for access in memory.accesses:
                if not access.operation.is_in(past):
                    freed = use("frees", "", self._clock.row_of(*owner), place)
                    self._tell(access, freed)

    def _tell(self, first: Access, second: Use) -> None:
        race = Race(first.use(self._row_of(first)), second)
        if race not in self.found:
            self.found.append(race)

    def _row_of(self, access: Access) -> Row:
        """Return the row of a timeline for the stream of an access."""
        return self._clock.row_of(*access.operation.stream)


def _is_simulated(x: Tensor) -> bool:
    return x.device.type == "sim"


def _up_to(access: Access) -> Past:
    return {access.operation.stream: access.operation.number}
