"""Hosts and their threads, which issue work to the devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import local

from dpkit.sim.clock.queues import Work
from dpkit.sim.clock.record import SECOND, Recorder, Row, place_name
from dpkit.sim.hardware.clusters import Cluster

DEFAULT = 0  # the number of a device's default stream

# What the host takes to ask a device whether it is done. CUDA takes 0.3 µs for
# an event (pytorch/pytorch, pull request 78279) or 0.5 with recording it
# (ICLDisco/parsec, pull request 576). The rest is assumed for Python.
POLL_SECONDS = 1e-6
# A host that polls again at once waits. A poll then takes this share of the
# time that it has waited: after 10 000 polls 8 seconds have passed, and who
# waits for a work is at most this share late.
SHARE_OF_WAIT = 1 / 1000
# A host that reads the time again at once waits for some seconds to pass, and
# no work tells when. A reading takes this share: after 300, 30 seconds have
# passed. So a loop that waits for the time ends soon on the wall as well.
SHARE_OF_READING = 1 / 20


@dataclass
class Issuers:
    """Threads that issue work, and how far each of them is."""

    kind: str  # "python", "backward" (autograd's) or "communication"
    times: list[int]  # picoseconds: of one for all devices, or one for each
    launch: int  # picoseconds that it costs them to issue an operation
    depth: int = 1  # of backward passes inside each other
    waiting: list[Work] = field(default_factory=list)  # what backward issued
    # Thread -> when it began to poll, and the end of its last poll.
    polls: dict[int, tuple[int, int]] = field(default_factory=dict)

    def of(self, device: int) -> int:
        """Return the number of the thread that issues for a device."""
        return 0 if len(self.times) == 1 else device

    def mark(self, device: int | None = None) -> int:
        """Return how far the thread of a device is, in picoseconds.

        Without a device: how far the thread is that is furthest on.
        """
        if device is None:
            return max(self.times)
        return self.times[self.of(device)]

    def reach(self, device: int, mark: int) -> None:
        """Move the thread of a device on to a mark, never back."""
        number = self.of(device)
        self.times[number] = max(self.times[number], mark)

    def row(self, device: int, num_hosts: int) -> Row:
        """Return the row in which a timeline shows the thread of a device."""
        if num_hosts > 1:
            return f"host:{device}", self.kind
        if self.kind == "backward":
            return "host", f"backward sim:{device}"
        return "host", self.kind


class Thread(local):
    """What each thread of Python has: who issues for it, current streams."""

    def __init__(self, python: Issuers, num_devices: int) -> None:
        self.at_work = python  # which issuers work for it
        self.current = [DEFAULT] * num_devices  # the current streams


class Hosts:
    """The time of every host and of its threads.

    In each thread of Python one kind of issuers is at work at a time.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        count = 1 if cluster.hosts == "one" else cluster.num_devices
        launch = round(SECOND * cluster.host.launch_seconds)
        later = round(SECOND * cluster.host.backward_launch_seconds)
        self.python = Issuers("python", [0] * count, launch)
        self.communication = Issuers("communication", [0] * count, later)
        self.thread = Thread(self.python, cluster.num_devices)
        self.recorder: Recorder | None = None

    @property
    def at_work(self) -> Issuers:
        """The issuers that work for this thread of Python."""
        return self.thread.at_work

    @at_work.setter
    def at_work(self, issuers: Issuers) -> None:
        self.thread.at_work = issuers

    @property
    def in_backward(self) -> bool:
        """Whether autograd's threads issue."""
        return self.thread.at_work.kind == "backward"

    def busy(self, device: int, name: str, seconds: float) -> int:
        """Occupy the host of ``device`` for a while; return the mark after."""
        return self._spend(device, name, round(SECOND * seconds))

    def launch(self, device: int, name: str, count: int = 1) -> int:
        """Make the host of ``device`` pay for ``count`` kernels.

        Return the mark at which it has issued them.
        """
        return self._spend(device, name, count * self.thread.at_work.launch)

    # The hosts that pay for a copy from sim:0 to sim:1:
    #
    #     one host for all        that host, once
    #     a host for each         both
    #     autograd's threads      that of sim:0

    def launch_copy(self, ends: Mapping[int, str]) -> int:
        """Make hosts pay for a copy; return the mark when all have."""
        devices = list(ends)  # the sender first
        if self.in_backward or len(self.at_work.times) == 1:
            devices = devices[:1]
        return max(self.launch(device, ends[device]) for device in devices)

    def wait_until(
        self, device: int, mark: int, cost: float | None = None
    ) -> None:
        """Make the host that drives ``device`` wait until a time."""
        if cost is None:
            cost = self.cluster.host.wait_seconds
        end = max(self.at_work.mark(device), mark) + round(SECOND * cost)
        self._go_on(device, end, f"wait for {place_name(device)}", "wait")

    def poll(
        self,
        device: int,
        name: str | None = None,
        share: float = SHARE_OF_WAIT,
    ) -> None:
        """Make the host that drives ``device`` ask whether it is done.

        Args:
            device: The number of the device.
            name: How a timeline calls it. None: a query of the device.
            share: The part that it takes of the time that the host has waited
                so far.
        """
        issuers = self.at_work
        number = issuers.of(device)
        now = issuers.mark(device)
        since, last = issuers.polls.get(number, (now, now))
        if last < now:  # the host has done something else in between
            since = now
        waited = share * (now - since)
        step = round(max(SECOND * POLL_SECONDS, waited))
        issuers.polls[number] = since, now + step
        name = name or f"query {place_name(device)}"
        self._go_on(device, now + step, name, "wait", again=True)

    def catch_up(self, devices: Sequence[int]) -> None:
        """Move the hosts of ``devices`` on to the time of the latest.

        Nothing happens where other threads than Python's issue.
        """
        if self.at_work is self.python:
            latest = max(map(self.python.mark, devices), default=0)
            for device in devices:
                self.python.reach(device, latest)

    def begin_backward(self) -> None:
        """From now on a thread of autograd's issues for each device."""
        if self.in_backward:  # of a backward inside another
            self.at_work.depth += 1
            return
        devices = range(self.cluster.num_devices)
        times = [self.python.mark(device) for device in devices]
        self.at_work = Issuers("backward", times, self.communication.launch)

    def end_backward(self) -> bool:
        """Return whether Python issues again: the last thread is done."""
        self.at_work.depth -= 1
        if self.at_work.depth:
            return False
        for device, time in enumerate(self.at_work.times):
            self.python.reach(device, time)
        self.at_work = self.python
        return True

    def await_thread(self, device: int, issued: int) -> None:
        """Move autograd's thread of a device on to when another issued."""
        if self.in_backward:
            self.at_work.reach(device, issued)

    def _spend(self, device: int, name: str, duration: int) -> int:
        """Move the issuer of ``device`` on; return its time after that."""
        issuers = self.thread.at_work
        times = issuers.times
        number = device if len(times) > 1 else 0
        start = times[number]
        end = times[number] = start + duration
        if self.recorder is not None and duration:
            row = issuers.row(number, len(self.python.times))
            self.recorder.note(row, name, "launch", start=start, end=end)
        return end

    def _go_on(
        self, device: int, end: int, name: str, kind: str, again: bool = False
    ) -> None:
        """Move the issuer of ``device`` on to ``end``, and record that.

        ``again``: what is the same as just before it becomes one with it.
        """
        issuers = self.at_work
        number = issuers.of(device)
        start = issuers.mark(device)
        issuers.times[number] = end
        if self.recorder and end > start:
            row = issuers.row(number, len(self.python.times))
            recorder = self.recorder
            note = recorder.note_again if again else recorder.note
            note(row, name, kind, start=start, end=end)
