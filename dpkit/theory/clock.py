"""The clock of a cluster: hosts issue, streams execute, time passes.

A host pays for each operation that it issues, and goes on. The operation
starts when it has been issued, when its stream is done with what came before,
and when the device's compute is free::

    host     |launch|launch|launch|            |
    stream          |== operation ==|== operation ==|== operation ==|

Nothing here computes numbers: it is told what runs and how long it takes.

Inside, time is counted in whole picoseconds. Sums of them are exact, so the
same work takes the same time whenever it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from dpkit.theory.clusters import Cluster
from dpkit.theory.record import Span
from dpkit.theory.recorder import SECOND, Recorder, Work, place_name
from dpkit.theory.resource import Resource, reserve

DEFAULT = 0  # the number of a device's default stream
MOST_STREAMS = 32  # on a device besides that one, as PyTorch has on CUDA


class Clock:
    """The time of every host and every stream, in seconds from zero.

    Args:
        cluster: What is timed.

    Attributes:
        current: The current stream of each device.
        lock: What a thread holds while it issues.
        num_streams: How many streams were made on each device.

    Example:
        A host issues three operations of 1 ms, and waits for them:

        >>> from dpkit.theory.clusters import cluster
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
        count = cluster.num_devices
        self.cluster = cluster
        self.current = [DEFAULT] * count
        self.num_streams = [0] * count
        self._hosts = [0] * (1 if cluster.hosts == "one" else count)
        self._ready: dict[tuple[int, int], int] = {}
        self._compute = [[Resource()] for _ in range(count)]
        self._ports: dict[tuple[str, str, int], Resource] = {}
        self._threads: list[int] | None = None
        self._backwards = 0
        self._waiting: list[Work] = []
        self._recorder: Recorder | None = None
        self.lock = RLock()  # several threads may issue

    # -- what the host does

    def now(self, device: int | None = None) -> float:
        """Return the time of the host of ``device``; of the latest host."""
        return self.mark(device) / SECOND

    def mark(self, device: int | None = None) -> int:
        """Return the same in picoseconds."""
        times = self._threads or self._hosts
        return max(times) if device is None else times[self._host(device)]

    def compute(
        self,
        device: int,
        name: str,
        seconds: float,
        num_bytes: int = 0,
        flops: int = 0,
        launches: int = 1,
    ) -> None:
        """Issue an operation to the current stream of ``device``.

        Args:
            device: Its number.
            name: What it is.
            seconds: How long it takes, once it starts.
            num_bytes: What it reads from memory and writes.
            flops: The arithmetic in it.
            launches: How many kernels the host launches for it.
        """
        host, threads = self.cluster.host, self._threads
        each = (
            host.launch_seconds
            if threads is None
            else host.backward_launch_seconds
        )
        work = Work(
            "compute",
            (name,),
            round(SECOND * seconds * self.cluster.slow.get(device, 1.0)),
            num_bytes,
            flops,
            self._compute[device],
            ((device, self.current[device]),),
            self.busy(device, name, launches * each),
        )
        if threads is None:
            self._place(work)
        else:
            self._waiting.append(work)
        if self.cluster.accelerator.synchronous:
            self.wait(device, cost=0.0)

    def busy(self, device: int, name: str, seconds: float) -> int:
        """Let the host of ``device`` work; return when it is done.

        Args:
            device: The number of a device that it drives.
            name: What it does.
            seconds: How long that takes.

        Returns:
            Picoseconds.
        """
        times = self._threads or self._hosts
        host = self._host(device)
        start = times[host]
        times[host] = start + round(SECOND * seconds)
        if self._recorder:
            row = self._row(host)
            self._recorder.note_host(row, name, "launch", start, times[host])
        return times[host]

    def copy(
        self,
        source: int | None,
        target: int | None,
        seconds: float,
        num_bytes: int,
        blocking: bool = False,
    ) -> int:
        """Issue a copy; None for ``source`` or ``target`` is the host.

        It runs on the current streams of both ends, and each waits for the
        other. It takes up the port that it leaves by, the one that it enters
        by, and the shared path through the host if it goes there.

        Args:
            source: The number of the device that sends.
            target: The number of the device that receives.
            seconds: How long it takes, once it starts.
            num_bytes: What it copies.
            blocking: Whether the host waits for it.

        Returns:
            When the host had issued it, in picoseconds.
        """
        ends = [d for d in (source, target) if d is not None]
        host = self.cluster.host
        each = host.launch_seconds
        if self._threads is not None:
            each = host.backward_launch_seconds
        names = []
        if source is not None:
            names.append(f"copy to {place_name(target)}")
        if target is not None:
            names.append(f"copy from {place_name(source)}")
        separate = self._threads is None and len(self._hosts) > 1
        hosts = ends if separate else ends[:1]
        issued = max(self.busy(d, name, each) for d, name in zip(hosts, names))
        work = Work(
            "copy",
            names,
            round(SECOND * seconds),
            num_bytes,
            0,
            self._path(source, target),
            [(d, self.current[d]) for d in ends],
            issued,
        )
        if self._threads is None:
            self._place(work)
        else:
            self._waiting.append(work)
        if blocking or self.cluster.accelerator.synchronous:
            self.wait(ends[0], self.current[ends[0]])
        return issued

    def wait(
        self,
        device: int,
        stream: int | None = None,
        cost: float | None = None,
    ) -> None:
        """Let the host wait for a stream of ``device``; None: for all.

        What autograd has issued so far is placed first.

        Args:
            device: The number of the device.
            stream: The number of the stream.
            cost: What waiting costs the host besides, in seconds; None: what
                its preset says.
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

    def wait_until(
        self, device: int, mark: int, cost: float | None = None
    ) -> None:
        """Let the host that drives ``device`` wait until a time."""
        if cost is None:
            cost = self.cluster.host.wait_seconds
        times = self._threads or self._hosts
        host = self._host(device)
        start = times[host]
        times[host] = max(start, mark) + round(SECOND * cost)
        if self._recorder:
            row, name = self._row(host), f"wait for {place_name(device)}"
            self._recorder.note_host(row, name, "wait", start, times[host])

    def meet(self, devices: Sequence[int]) -> None:
        """Let the hosts of ``devices`` go on together, with the latest."""
        if self._threads is None and len(self._hosts) > 1 and devices:
            latest = max(self._hosts[d] for d in devices)
            for d in devices:
                self._hosts[d] = latest

    @property
    def in_backward(self) -> bool:
        """Whether autograd's threads issue."""
        return self._threads is not None

    # -- what is recorded

    def record(self) -> list[Span]:
        """From now on note what takes time.

        Its seconds begin at the time of the latest host; what another issues
        before is at negative ones.
        """
        self._recorder = Recorder(self.mark())
        return self._recorder.spans

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
        """Let a stream wait until a time: for an event, say."""
        self._ready[device, stream] = max(self.ready(device, stream), mark)

    # -- backward: a thread for each device

    def begin_backward(self) -> None:
        """From now on a thread for each device issues, as autograd's do."""
        with self.lock:
            self._backwards += 1
            if self._backwards == 1:
                self._threads = [
                    self._hosts[self._host(d)]
                    for d in range(self.cluster.num_devices)
                ]

    def end_backward(self) -> None:
        """Go on when the last of the threads is done."""
        with self.lock:
            self._backwards -= 1
            if self._backwards or self._threads is None:
                return
            self.settle()
            threads, self._threads = self._threads, None
            for device, time in enumerate(threads):
                host = self._host(device)
                self._hosts[host] = max(self._hosts[host], time)

    def await_thread(self, device: int, issued: int) -> None:
        """Let the thread of ``device`` go on when another has issued."""
        if self._threads is not None:
            self._threads[device] = max(self._threads[device], issued)

    def settle(self) -> None:
        """Place what the threads have issued, in the order of time."""
        waiting, self._waiting = self._waiting, []
        for work in sorted(waiting, key=lambda work: work.issued):
            self._place(work)

    # -- inside

    def _host(self, device: int) -> int:
        """Return the number of the host, or thread, that issues."""
        alone = self._threads is None and len(self._hosts) == 1
        return 0 if alone else device

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

    def _path(self, source: int | None, target: int | None) -> list[Resource]:
        """Return the ports and shared paths that a copy takes up."""
        link = self.cluster.link
        if source is None or target is None:
            link = self.cluster.host_link
        path = []
        if source is not None:
            path.append((link.name, "out", source))
        if target is not None:
            path.append((link.name, "in", target))
        if not link.peer_to_peer:
            if source is not None:
                path.append((link.name, "into the host", 0))
            if target is not None:
                path.append((link.name, "out of the host", 0))
        return [self._ports.setdefault(key, Resource()) for key in path]

    def _row(self, host: int) -> tuple[str, str]:
        """Return the row of the timeline that a host or thread has."""
        alone = len(self._hosts) == 1
        device = "host" if alone else f"host:{host}"
        if self._threads is None:
            return device, "python"
        return device, f"backward sim:{host}" if alone else "backward"
