"""The clock of a cluster: hosts issue, streams execute, time passes.

A host pays for each operation that it issues, and goes on. The operation
starts when it has been issued, when its stream is done with what came before,
and when the device's compute is free (``queues`` says who comes first)::

    host     |launch|launch|launch|            |
    stream          |== operation ==|== operation ==|== operation ==|

Nothing here computes numbers: the caller says what runs and for how long. A
device is given by its number; None stands for the host's memory. Seconds are
given and returned; marks are times inside, in whole picoseconds. Sums of them
are exact, so the same work takes the same time whenever it starts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from threading import RLock

from dpkit.sim.clock.issuers import DEFAULT, SHARE_OF_WAIT, Hosts
from dpkit.sim.clock.paths import Paths
from dpkit.sim.clock.queues import Queues, Stream, Work
from dpkit.sim.clock.record import (
    SECOND,
    Recorder,
    Row,
    Span,
    place_name,
)
from dpkit.sim.clock.resources import Needed, Resource
from dpkit.sim.hardware.clusters import Cluster

MOST_STREAMS = (
    32  # on a device besides the default one, as PyTorch has on CUDA
)


class Clock:
    """The time of every host and every stream, in seconds from zero."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = Hosts(cluster)
        count = cluster.num_devices
        self.num_streams = [0] * count  # made so far on each device
        self.names: dict[Stream, str] = {}  # of streams that have one
        self._queues = Queues()
        self._compute = [[Resource()] for _ in range(count)]
        self._adders = [[Resource()] for _ in range(count)]
        self._paths = Paths(cluster)
        self.ranks_alike = 0  # for how many device 0 stands, if it does
        self.lock = RLock()  # what a thread holds while it issues

    @property
    def current(self) -> list[int]:
        """The current stream of each device, in this thread of Python."""
        return self.hosts.thread.current

    def now(self, device: int | None = None) -> float:
        """Return the time of the host that drives a device, in seconds.

        Without a device: the time of the host that is furthest on.
        """
        return self.mark(device) / SECOND

    def mark(self, device: int | None = None) -> int:
        """Return the time of :meth:`now` in picoseconds, a whole number."""
        return self.hosts.at_work.mark(device)

    def stand_for(self, count: int) -> None:
        """Make device 0 stand for the first ``count`` devices.

        The others are taken to do the same at the same moments. With a
        ``count`` of 0 it stands for itself alone again.
        """
        self.ranks_alike = count

    # -- what the host issues and waits for

    def compute(
        self,
        device: int,
        name: str,
        *,
        seconds: float,
        num_bytes: int = 0,
        flops: int = 0,
        launches: int = 1,
        phase: str = "",
    ) -> None:
        """Issue an operation to the current stream of a device.

        Args:
            device: The number of the device that computes.
            name: What timelines call the operation, such as "mm".
            seconds: What it takes on a device that is not slow.
            num_bytes: What it moves to and from memory.
            flops: The arithmetic in it.
            launches: Of how many kernels it is: the host pays for each.
            phase: That of its :class:`~dpkit.sim.clock.record.Span`.
        """
        hosts = self.hosts
        thread = hosts.thread
        slow = self.cluster.slow
        if slow:
            seconds *= slow.get(device, 1.0)
        overlapped = thread.at_work is hosts.communication
        # Most work is made here: keywords would take twice as long.
        work = Work(
            ((device, thread.current[device]),),
            hosts.launch(device, name, launches),
            "compute",
            (name,),
            round(SECOND * seconds),
            num_bytes,
            flops,
            phase,
            self._adders[device] if overlapped else self._compute[device],
        )
        self._issue(work)
        if self.cluster.accelerator.synchronous:
            self.wait(device, thread.current[device], cost=0.0)

    # A copy from sim:0 to sim:1, one host, a launch of 8 µs, 1 ms to copy:
    #
    #     host               |launch|                     goes on at 8 µs
    #     stream of sim:0           |== copy to sim:1 ==|   the current ones;
    #     stream of sim:1           |= copy from sim:0 =|   it waits for both
    #     port out of sim:0         |######## busy #####|
    #     port into sim:1           |######## busy #####|

    def copy(
        self,
        source: int | None,
        target: int | None,
        *,
        seconds: float,
        num_bytes: int,
        blocking: bool = False,
        share: float = 1.0,
    ) -> int:
        """Issue a copy to the current streams of both of its ends.

        Devices that are alike copy to and from the host at the same moment.

        Args:
            source: The number of the device that sends, None for the host.
            target: The same of where the copy arrives.
            seconds: What it takes once it starts.
            num_bytes: Its size.
            blocking: Whether the host waits until the copy has arrived.
            share: The part of a shared path that the copy takes, from 0 to
                1: other copies may use the rest.

        Returns:
            The mark at which the host had issued it, in picoseconds.
        """
        ends = _names(source, target)
        rounds = 1
        if self.ranks_alike and None in (source, target):
            rounds = self._rounds(share)
            share = 1.0
        work = Work(
            streams=[(device, self.current[device]) for device in ends],
            issued=self.hosts.launch_copy(ends),
            kind="copy",
            names=list(ends.values()),
            duration=rounds * round(SECOND * seconds),
            num_bytes=num_bytes,
            resources=self._paths.between(source, target, share),
        )
        self._issue(work)
        if blocking or self.cluster.accelerator.synchronous:
            self.wait(*work.streams[0])
        return work.issued

    def collective(
        self,
        devices: Sequence[int],
        *,
        name: str,
        seconds: float,
        num_bytes: int,
    ) -> None:
        """Issue what runs on several devices together, as one kernel on each.

        It starts when all are ready, and occupies their ports both ways. Over
        several nodes the network sets the rate, and the ports inside have
        room for others. Where devices are alike, the first one alone runs its
        kernel.

        Args:
            devices: The numbers of those that take part.
            name: What timelines call it, such as "allreduce".
            seconds: What it takes once all are ready.
            num_bytes: What leaves each device; as much arrives there.
        """
        alike = bool(self.ranks_alike)
        inside, across = self._rings(devices)
        part = 1.0
        if across and seconds:
            link = self.cluster.link
            rate = link.bytes_per_second * link.achieved
            part = num_bytes / seconds / rate
        path: dict[Needed, None] = {}
        for rings, of_port in (inside, part), (across, 1.0):
            for ring in rings:
                for ends in zip(ring, ring[1:] + ring[:1]):
                    if not alike or devices[0] in ends:
                        needed = self._paths.between(*ends, of_port=of_port)
                        path |= dict.fromkeys(needed)
        devices = devices[:1] if alike else devices
        work = Work(
            kind="copy",
            names=[name] * len(devices),
            duration=round(SECOND * seconds),
            num_bytes=num_bytes,
            flops=0,
            resources=list(path),
            streams=[(device, self.current[device]) for device in devices],
            issued=max([self.hosts.launch(d, name) for d in devices]),
        )
        for device in devices:  # what its thread issues next comes later
            self.hosts.await_thread(device, work.issued)
        self._issue(work)
        if self.cluster.accelerator.synchronous:
            for device in devices:
                self.wait(device, self.current[device], cost=0.0)

    def wait(
        self, device: int, stream: int | None = None, cost: float | None = None
    ) -> None:
        """Make the host of a device wait for what it has issued.

        Args:
            device: The number of the device.
            stream: The stream to wait for; by default all of the device's.
            cost: The seconds that waiting takes besides; by default those of
                the host's preset.
        """
        with self.lock:
            self.flush()
            ends = [
                self._queues.end_of(work)
                for (owner, number), work in self._queues.last.items()
                if owner == device and stream in (None, number)
            ]
        self.hosts.wait_until(device, max(ends, default=0), cost)

    def record(self) -> list[Span]:
        """Start a recording at the latest host's time; return its spans."""
        self.hosts.recorder = Recorder(self.mark(), self.row_of)
        return self.hosts.recorder.spans

    def stop_recording(self) -> None:
        """Finish the recording: it has all work that was issued so far."""
        with self.lock:
            self.flush()
            self._queues.place_before(inf)
            self.hosts.recorder = None

    # -- streams and events

    def new_stream(self, device: int) -> int:
        """Return the number of a new stream of a device.

        A device has ``MOST_STREAMS``; after these they are given out again.
        """
        self.num_streams[device] += 1
        return (self.num_streams[device] - 1) % MOST_STREAMS + DEFAULT + 1

    def name_stream(self, device: int, number: int, name: str) -> None:
        """Give a stream a name, for timelines; one may have several."""
        before = self.names.get((device, number))
        self.names[device, number] = f"{before}; {name}" if before else name

    def row_of(self, device: int, stream: int) -> Row:
        """Return the row of a timeline for a stream of a device."""
        default = f"stream {stream}" if stream != DEFAULT else "compute"
        return f"sim:{device}", self.names.get((device, stream), default)

    def mark_stream(self, device: int, stream: int, *after: Work) -> Work:
        """Put a mark at the end of a stream; return it.

        What comes later in the stream waits for the mark, and the mark for
        the work in ``after``, such as marks in other streams.
        """
        mark = Work(((device, stream),), issued=self.mark(device))
        with self.lock:
            self.flush()
            self._queues.add(mark, after, until=inf)
        return mark

    def end_of(self, work: Work) -> int:
        """Return when work is done, in picoseconds."""
        with self.lock:
            self.flush()
            return self._queues.end_of(work)

    def poll(
        self,
        device: int,
        name: str | None = None,
        *,
        share: float = SHARE_OF_WAIT,
    ) -> None:
        """Make the host ask whether ``device`` is done: it costs a moment.

        Args:
            device: The number of the device.
            name: How a timeline calls it. None: a query of the device.
            share: The part that it takes of the time that the host has waited
                so far.
        """
        with self.lock:
            self.hosts.poll(device, name, share)

    def is_done(self, work: Work, device: int) -> bool:
        """Return whether work is done at the time of the host of a device."""
        now = self.mark(device)
        with self.lock:
            self.flush()
            self._queues.place_before(now)
        return work.end is not None and work.end <= now

    # -- other threads

    def begin_backward(self) -> None:
        """From now on a thread for each device issues, as autograd's do."""
        with self.lock:
            self.hosts.begin_backward()

    def end_backward(self) -> None:
        """Go on when the last of the threads is done."""
        with self.lock:
            waiting = self.hosts.at_work.waiting
            if self.hosts.in_backward and self.hosts.end_backward():
                self._add(waiting)

    @contextmanager
    def communication_threads(
        self, since: Mapping[int, int]
    ) -> Iterator[None]:
        """Issue a block from the communication threads of the hosts.

        Each host has one, besides the thread that runs Python. What these
        threads compute is overlapped: it takes nothing from the compute of
        the device.

        Args:
            since: Device -> the mark, in picoseconds, from which on the
                thread of its host issues.
        """
        with self.lock:
            self.flush()
        hosts = self.hosts
        before = hosts.at_work
        hosts.at_work = hosts.communication
        for device, mark in since.items():
            hosts.at_work.reach(device, mark)
        try:
            yield
        finally:
            hosts.at_work = before

    def flush(self) -> None:
        """Queue what the threads have issued, in the order of time."""
        issuers = self.hosts.thread.at_work
        if issuers.waiting:
            waiting = issuers.waiting
            issuers.waiting = []
            self._add(waiting)

    # -- inside

    # Five devices share a path to their host, and a copy takes 2/5 of it: two
    # fit side by side, so that the last is done after three rounds.

    def _rounds(self, share: float) -> int:
        """Return after how many copies the last of those alike is done."""
        switch_of = self.cluster.switch_of
        if self.cluster.host_link.peer_to_peer:
            return 1
        switches = map(switch_of, range(self.ranks_alike))
        count = list(switches).count(switch_of(0))
        return -(-count // int(1 / share))

    # Devices 0 1 2 3 and 4 5 on two nodes: 0 1 2 3 and 4 5 send in their
    # nodes. Between the nodes there is a ring of the first of each, 0 4, and
    # one of the second of each, 1 5.

    def _rings(
        self, devices: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return who sends to whom in a collective: inside nodes, across."""
        nodes: dict[int, list[int]] = {}
        for device in devices:
            nodes.setdefault(self.cluster.node_of(device), []).append(device)
        across = [list(ring) for ring in zip(*nodes.values())]
        inside = [ring for ring in nodes.values() if len(ring) > 1]
        return inside, [ring for ring in across if len(ring) > 1]

    def _issue(self, work: Work) -> None:
        """Queue work; what several threads issue, when all have."""
        hosts = self.hosts
        issuers = hosts.thread.at_work
        work.recorder = hosts.recorder
        if issuers.kind == "backward":
            issuers.waiting.append(work)
        else:
            # What is issued from now on cannot start earlier.
            until = min(issuers.times)
            self._queues.add(work, until=until)
            self._queues.place_before(until)

    def _add(self, waiting: list[Work]) -> None:
        until = min(self.hosts.at_work.times)
        for work in sorted(waiting, key=lambda work: work.issued):
            self._queues.add(work, until=min(until, work.issued))


def _names(source: int | None, target: int | None) -> dict[int, str]:
    """Return what a copy is called on each of its devices."""
    names = {}
    if source is not None:
        names[source] = f"copy to {place_name(target)}"
    if target is not None:
        names[target] = f"copy from {place_name(source)}"
    return names
