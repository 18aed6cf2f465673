"""The clock of a cluster: hosts issue, streams execute, time passes.

A host pays for each operation that it issues, and goes on. The operation
starts when it has been issued, when its stream is done with what came before,
and when the device's compute is free::

    host     |launch|launch|launch|            |
    stream          |== operation ==|== operation ==|== operation ==|

Nothing here computes numbers: the caller says what runs and for how long. A
device is given by its number; None stands for the host's memory. Seconds are
given and returned; marks are times inside, in whole picoseconds. Sums of them
are exact, so the same work takes the same time whenever it starts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock

from dpkit.theory.clock.issuers import Hosts
from dpkit.theory.clock.paths import Paths
from dpkit.theory.clock.record import SECOND, Recorder, Span, Work, place_name
from dpkit.theory.clock.resources import Resource, reserve
from dpkit.theory.hardware.clusters import Cluster

DEFAULT = 0  # the number of a device's default stream
MOST_STREAMS = 32  # on a device besides that one, as PyTorch has on CUDA


class Clock:
    """The time of every host and every stream, in seconds from zero."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = Hosts(cluster)
        count = cluster.num_devices
        self.current = [DEFAULT] * count  # the current stream of each device
        self.num_streams = [0] * count  # made so far on each device
        self._ready: dict[tuple[int, int], int] = {}
        self._compute = [[Resource()] for _ in range(count)]
        self._adders = [[Resource()] for _ in range(count)]
        self._paths = Paths(cluster)
        self._backwards = 0
        self._waiting: list[Work] = []
        self.lock = RLock()  # what a thread holds while it issues

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
            "compute",
            (name,),
            round(SECOND * seconds * slowness),
            num_bytes,
            flops,
            resources,
            ((device, self.current[device]),),
            self.hosts.launch(device, name, launches),
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
    ) -> int:
        """Issue a copy; return the mark at which the host had issued it."""
        ends = {}  # device -> what the copy is called there
        if source is not None:
            ends[source] = f"copy to {place_name(target)}"
        if target is not None:
            ends[target] = f"copy from {place_name(source)}"
        names, duration = list(ends.values()), round(SECOND * seconds)
        path = self._paths.between(source, target)
        streams = [(device, self.current[device]) for device in ends]
        issued = self.hosts.launch_copy(ends)
        self._issue(
            Work("copy", names, duration, num_bytes, 0, path, streams, issued)
        )
        if blocking or self.cluster.accelerator.synchronous:
            self.wait(*streams[0])
        return issued

    def collective(
        self, devices: Sequence[int], name: str, seconds: float, num_bytes: int
    ) -> None:
        """Issue what runs on several devices together, as one kernel on each.

        It starts when all are ready, and occupies their ports both ways;
        ``num_bytes`` leave each device, and arrive there.
        """
        # 0 1 2 3 on two nodes: rings 0 1 2 3, and 0 2, 1 3 between the nodes.
        path: dict[Resource, None] = {}
        for far in {1, self.cluster.ranks_per_node or 1}:
            for i, device in enumerate(devices):
                target = devices[(i + far) % len(devices)]
                path |= dict.fromkeys(self._paths.between(device, target))
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
        self.settle()
        marks = [
            ready
            for (owner, number), ready in self._ready.items()
            if owner == device and stream in (None, number)
        ]
        self.hosts.wait_until(device, max(marks, default=0), cost)

    def record(self) -> list[Span]:
        """Start a recording at the latest host's time; return its spans."""
        self.hosts.recorder = Recorder(self.mark())
        return self.hosts.recorder.spans

    def stop_recording(self) -> None:
        """Note what autograd has issued too, and nothing more."""
        self.settle()
        self.hosts.recorder = None

    # -- streams and events

    def new_stream(self, device: int) -> int:
        """Return the number of a stream; beyond a few they are used again."""
        self.num_streams[device] += 1
        return (self.num_streams[device] - 1) % MOST_STREAMS + DEFAULT + 1

    def ready(self, device: int, stream: int) -> int:
        """Return when a stream will be done with what it has."""
        self.settle()
        return self._ready.get((device, stream), 0)

    def hold(self, device: int, stream: int, mark: int) -> None:
        """Make a stream wait until a time: for an event, say."""
        self._ready[device, stream] = max(self.ready(device, stream), mark)

    # -- other threads

    def begin_backward(self) -> None:
        """From now on a thread for each device issues, as autograd's do."""
        with self.lock:
            self._backwards += 1
            if self._backwards == 1:
                self.hosts.begin_backward()

    def end_backward(self) -> None:
        """Go on when the last of the threads is done."""
        with self.lock:
            self._backwards -= 1
            if self._backwards == 0 and self.hosts.in_backward:
                self.settle()
                self.hosts.end_backward()

    @contextmanager
    def beside(self, since: Mapping[int, int]) -> Iterator[None]:
        """Issue a block from other threads: one beside each host.

        What they compute takes nothing from the device's compute. ``since``
        is, by device, the mark from which the thread of its host issues.
        """
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
        """Place what the threads have issued, in the order of time."""
        waiting, self._waiting = self._waiting, []
        for work in sorted(waiting, key=lambda work: work.issued):
            self._place(work)

    # -- inside

    def _issue(self, work: Work) -> None:
        """Place work; what several threads issue, when all have."""
        if self.hosts.in_backward:
            self._waiting.append(work)
        else:
            self._place(work)

    def _place(self, work: Work) -> None:
        """Find the time of ``work`` on its streams and resources."""
        ready = work.issued
        for key in work.streams:
            ready = max(ready, self._ready.get(key, 0))
        start = reserve(work.resources, ready, work.duration)
        for key in work.streams:
            self._ready[key] = start + work.duration
        if self.hosts.recorder:
            self.hosts.recorder.note_work(work, start)
