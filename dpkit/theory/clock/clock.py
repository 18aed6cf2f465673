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

from dpkit.theory.clock.issuers import DEFAULT, Hosts
from dpkit.theory.clock.paths import Paths
from dpkit.theory.clock.queues import Queues, Stream, Work
from dpkit.theory.clock.record import (
    SECOND,
    Recorder,
    Row,
    Span,
    place_name,
)
from dpkit.theory.clock.resources import Needed, Resource
from dpkit.theory.hardware.clusters import Cluster

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
        self.lock = RLock()  # what a thread holds while it issues

    @property
    def current(self) -> list[int]:
        """The current stream of each device, in this thread of Python."""
        return self.hosts.thread.current

    def now(self, device: int | None = None) -> float:
        """Return the time of the host of ``device``; None: of the latest."""
        return self.mark(device) / SECOND

    def mark(self, device: int | None = None) -> int:
        """Return the same in picoseconds."""
        return self.hosts.at_work.mark(device)

    # -- what the host issues and waits for

    def compute(
        self,
        device: int,
        name: str,
        seconds: float,
        num_bytes: int = 0,
        flops: int = 0,
        launches: int = 1,
    ) -> None:
        """Issue an operation of so many kernels to the current stream."""
        beside = self.hosts.at_work is self.hosts.communication
        resources = (self._adders if beside else self._compute)[device]
        slowness = self.cluster.slow.get(device, 1.0)
        work = Work(
            streams=((device, self.current[device]),),
            issued=self.hosts.launch(device, name, launches),
            kind="compute",
            names=(name,),
            duration=round(SECOND * seconds * slowness),
            num_bytes=num_bytes,
            flops=flops,
            resources=resources,
        )
        self._issue(work)
        if self.cluster.accelerator.synchronous:
            self.wait(device, self.current[device], cost=0.0)

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
        seconds: float,
        num_bytes: int,
        blocking: bool = False,
        share: float = 1.0,
    ) -> int:
        """Issue a copy; return the mark at which the host had issued it.

        It takes that ``share`` of a path on which others may copy as well.
        """
        ends = _names(source, target)
        work = Work(
            streams=[(device, self.current[device]) for device in ends],
            issued=self.hosts.launch_copy(ends),
            kind="copy",
            names=list(ends.values()),
            duration=round(SECOND * seconds),
            num_bytes=num_bytes,
            resources=self._paths.between(source, target, share),
        )
        self._issue(work)
        if blocking or self.cluster.accelerator.synchronous:
            self.wait(*work.streams[0])
        return work.issued

    def collective(
        self, devices: Sequence[int], name: str, seconds: float, num_bytes: int
    ) -> None:
        """Issue what runs on several devices together, as one kernel on each.

        It starts when all are ready, and occupies their ports both ways;
        ``num_bytes`` leave each device, and arrive there. Over several nodes
        the network sets the rate, and the ports inside have room for others.
        """
        inside, across = self._rings(devices)
        link, part = self.cluster.link, 1.0
        if across and seconds:
            rate = link.bytes_per_second * link.achieved
            part = num_bytes / seconds / rate
        path: dict[Needed, None] = {}
        for rings, of_port in (inside, part), (across, 1.0):
            for ring in rings:
                for ends in zip(ring, ring[1:] + ring[:1]):
                    needed = self._paths.between(*ends, of_port=of_port)
                    path |= dict.fromkeys(needed)
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
        """Make the host wait for a stream of ``device``; None: for all.

        Waiting costs it ``cost`` seconds besides; None: what its preset says.
        """
        with self.lock:
            self.settle()
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
        """Note what has been issued, and nothing more."""
        with self.lock:
            self.settle()
            self._queues.place_before(inf)
            self.hosts.recorder = None

    # -- streams and events

    def new_stream(self, device: int) -> int:
        """Return the number of a stream; beyond a few they are used again."""
        self.num_streams[device] += 1
        return (self.num_streams[device] - 1) % MOST_STREAMS + DEFAULT + 1

    def name_stream(self, device: int, number: int, name: str) -> None:
        """Give a stream a name, for timelines; one may have several."""
        before = self.names.get((device, number))
        self.names[device, number] = f"{before}; {name}" if before else name

    def row_of(self, device: int, stream: int) -> Row:
        """Return the row of a timeline for a stream of a device."""
        usual = f"stream {stream}" if stream != DEFAULT else "compute"
        return f"sim:{device}", self.names.get((device, stream), usual)

    def mark_stream(self, device: int, stream: int, *after: Work) -> Work:
        """Put a mark at the end of a stream; return it.

        What comes later in the stream waits for the mark, and the mark for
        the work in ``after``, such as marks in other streams.
        """
        mark = Work(((device, stream),), issued=self.mark(device))
        with self.lock:
            self.settle()
            self._queues.add(mark, after)
        return mark

    def end_of(self, work: Work) -> int:
        """Return when work is done, in picoseconds."""
        with self.lock:
            self.settle()
            return self._queues.end_of(work)

    def poll(self, device: int) -> None:
        """Make the host ask ``device`` something, for a moment."""
        with self.lock:
            self.hosts.poll(device)

    def is_done(self, work: Work, device: int) -> bool:
        """Return whether work is done at the time of the host of a device."""
        now = self.mark(device)
        with self.lock:
            self.settle()
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
    def beside(self, since: Mapping[int, int]) -> Iterator[None]:
        """Issue a block from other threads: one beside each host.

        What they compute takes nothing from the device's compute. ``since``
        is, by device, the mark from which the thread of its host issues.
        """
        with self.lock:
            self.settle()
        hosts, before = self.hosts, self.hosts.at_work
        hosts.at_work = hosts.communication
        for device, mark in since.items():
            hosts.at_work.reach(device, mark)
        try:
            yield
        finally:
            hosts.at_work = before

    def settle(self) -> None:
        """Queue what the threads have issued, in the order of time."""
        issuers = self.hosts.at_work
        waiting, issuers.waiting = issuers.waiting, []
        self._add(waiting)

    # -- inside

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
        work.recorder, issuers = self.hosts.recorder, self.hosts.at_work
        if issuers.kind == "backward":
            issuers.waiting.append(work)
        else:
            self._queues.add(work)
            # What is issued from now on cannot start earlier.
            self._queues.place_before(min(issuers.times))

    def _add(self, waiting: list[Work]) -> None:
        for work in sorted(waiting, key=lambda work: work.issued):
            self._queues.add(work)


def _names(source: int | None, target: int | None) -> dict[int, str]:
    """Return what a copy is called on each of its devices."""
    names = {}
    if source is not None:
        names[source] = f"copy to {place_name(target)}"
    if target is not None:
        names[target] = f"copy from {place_name(source)}"
    return names
