"""The clock of a cluster: hosts issue, streams execute, time passes.

A host pays for each operation that it issues, and goes on. The operation
starts when it has been issued, when its stream is done with what came before,
and when the device's compute is free::

    host     |launch|launch|launch|            |
    stream          |== operation ==|== operation ==|== operation ==|

Nothing here computes numbers: it is told what runs and how long it takes. A
device is given by its number; None stands for the host's memory. Seconds are
given and returned; marks are times inside, in whole picoseconds. Sums of them
are exact, so the same work takes the same time whenever it starts.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock

from dpkit.theory.clock.issuers import Hosts, Issuers
from dpkit.theory.clock.paths import Paths
from dpkit.theory.clock.record import SECOND, Work, place_name
from dpkit.theory.clock.resources import Resource, reserve
from dpkit.theory.hardware.clusters import Cluster

DEFAULT = 0  # the number of a device's default stream
MOST_STREAMS = 32  # on a device besides that one, as PyTorch has on CUDA


class Clock(Hosts):
    """The time of every host and every stream, in seconds from zero.

    Args:
        cluster: What is timed.

    Attributes:
        current: The current stream of each device.
        lock: What a thread holds while it issues.
        num_streams: How many streams were made on each device.

    Example:
        A host issues three operations of 1 ms, and waits for them:

        >>> from dpkit.theory.hardware.clusters import cluster
        >>> clock = Clock(cluster(2, "v100-pcie", "pcie3"))
        >>> for _ in range(3):
        ...     clock.compute(0, "mm", 1e-3)
        >>> f"{clock.now():.6f}"  # three launches
        '0.000024'
        >>> clock.wait(0)
        >>> f"{clock.now():.4f}"
        '0.0030'
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        count = cluster.num_devices
        self.current = [DEFAULT] * count
        self.num_streams = [0] * count
        self._ready: dict[tuple[int, int], int] = {}
        self._compute = [[Resource()] for _ in range(count)]
        self._adders = [[Resource()] for _ in range(count)]
        self._paths = Paths(cluster)
        self._backwards = 0
        self._waiting: list[Work] = []
        self.lock = RLock()  # several threads may issue

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
        each = self._issuers.launch_seconds(self.cluster.host)
        beside = self._issuers is self._communication
        work = Work(
            "compute",
            (name,),
            round(SECOND * seconds * self.cluster.slow.get(device, 1.0)),
            num_bytes,
            flops,
            (self._adders if beside else self._compute)[device],
            ((device, self.current[device]),),
            self.busy(device, name, launches * each),
        )
        self._issue(work)
        if self.cluster.accelerator.synchronous:
            self.wait(device, self.current[device], cost=0.0)

    # A copy from sim:0 to sim:1, one host, a launch of 8 µs, 1 ms to copy:
    #
    #     host               |launch|                     goes on at 8 µs
    #     stream of sim:0           |== copy to sim:1 ==|
    #     stream of sim:1           |= copy from sim:0 =|
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
        """Issue a copy; return the mark at which the host had issued it.

        It runs on the current streams of both ends, and each waits for the
        other. It occupies the port that it leaves by, the one that it enters
        by, and the shared path through the host if it goes there.
        """
        ends = [d for d in (source, target) if d is not None]
        names = []
        if source is not None:
            names.append(f"copy to {place_name(target)}")
        if target is not None:
            names.append(f"copy from {place_name(source)}")
        issued = self._launch_copy(ends, names)
        path = self._paths.between(source, target)
        streams = [(d, self.current[d]) for d in ends]
        duration = round(SECOND * seconds)
        self._issue(
            Work("copy", names, duration, num_bytes, 0, path, streams, issued)
        )
        if blocking or self.cluster.accelerator.synchronous:
            self.wait(ends[0], self.current[ends[0]])
        return issued

    def _launch_copy(self, ends: list[int], names: list[str]) -> int:
        """Make the hosts of the ends pay for a copy; return when all have."""
        # Of autograd's threads only the sender's issues; a process each does.
        threads = self._issuers
        separate = threads.kind != "backward" and len(threads.times) > 1
        hosts = ends if separate else ends[:1]
        each = threads.launch_seconds(self.cluster.host)
        return max(self.busy(d, name, each) for d, name in zip(hosts, names))

    def wait(
        self,
        device: int,
        stream: int | None = None,
        cost: float | None = None,
    ) -> None:
        """Make the host wait for a stream of ``device``; None: for all.

        What autograd has issued so far is placed first. Waiting costs the
        host besides ``cost`` seconds; None: what its preset says.
        """
        self.settle()
        done = max(
            (
                ready
                for (owner, number), ready in self._ready.items()
                if owner == device and stream in (None, number)
            ),
            default=0,
        )
        self.wait_until(device, done, cost)

    def stop_recording(self) -> None:
        """Note what autograd has issued too, and nothing more."""
        self.settle()
        self._recorder = None

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
                devices = range(self.cluster.num_devices)
                times = [self._python.mark(d) for d in devices]
                self._issuers = Issuers("backward", times)

    def end_backward(self) -> None:
        """Go on when the last of the threads is done."""
        with self.lock:
            self._backwards -= 1
            if self._backwards or not self.in_backward:
                return
            self.settle()
            threads, hosts = self._issuers, self._python
            self._issuers = hosts
            for device, time in enumerate(threads.times):
                host = hosts.of(device)
                hosts.times[host] = max(hosts.times[host], time)

    @contextmanager
    def beside(self, since: Mapping[int, int]) -> Iterator[None]:
        """Issue a block from other threads: one beside each host.

        What they compute takes nothing from the device's compute. ``since``
        is, by device, the mark from which the thread of its host issues.
        """
        self.settle()
        threads, before = self._communication, self._issuers
        for device, mark in since.items():
            host = threads.of(device)
            threads.times[host] = max(threads.times[host], mark)
        self._issuers = threads
        try:
            yield
        finally:
            self._issuers = before

    def settle(self) -> None:
        """Place what the threads have issued, in the order of time."""
        waiting, self._waiting = self._waiting, []
        for work in sorted(waiting, key=lambda work: work.issued):
            self._place(work)

    # -- inside

    def _issue(self, work: Work) -> None:
        """Place work; what several threads issue, when all have."""
        if self.in_backward:
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
        if self._recorder:
            self._recorder.note_work(work, start)
