"""Who issues work to the devices: hosts, and their threads."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpkit.theory.clock.record import SECOND, Recorder, Row, Span, place_name
from dpkit.theory.hardware import Host
from dpkit.theory.hardware.clusters import Cluster


@dataclass
class Issuers:
    """Threads that issue work, and how far each of them is.

    They are the program itself ("python"), autograd's threads ("backward"),
    or threads beside those that send gradients ("communication").
    """

    kind: str
    times: list[int]  # picoseconds: of one for all devices, or one for each

    def of(self, device: int) -> int:
        """Return the number of the one that drives a device."""
        return 0 if len(self.times) == 1 else device

    def mark(self, device: int | None = None) -> int:
        """Return the time of the one of a device; None: of the latest."""
        if device is None:
            return max(self.times)
        return self.times[self.of(device)]

    def launch_seconds(self, host: Host) -> float:
        """Return what it costs them to issue an operation."""
        if self.kind == "python":
            return host.launch_seconds
        return host.backward_launch_seconds

    def row(self, device: int, num_hosts: int) -> Row:
        """Return the row of a timeline for the one that drives a device."""
        if num_hosts > 1:
            return f"host:{device}", self.kind
        if self.kind in ("python", "communication"):
            return "host", self.kind
        return "host", f"{self.kind} sim:{device}"


class Hosts:
    """The time of every host and of its threads: what :class:`Clock` adds to.

    One set of issuers is at work at a time: Python itself, autograd's threads
    or the threads that send gradients.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        count = 1 if cluster.hosts == "one" else cluster.num_devices
        self._python = Issuers("python", [0] * count)
        self._communication = Issuers("communication", [0] * count)
        self._issuers = self._python
        self._recorder: Recorder | None = None

    def now(self, device: int | None = None) -> float:
        """Return the time of the host of ``device``; of the latest host."""
        return self.mark(device) / SECOND

    def mark(self, device: int | None = None) -> int:
        """Return the same in picoseconds."""
        return self._issuers.mark(device)

    def busy(self, device: int, name: str, seconds: float) -> int:
        """Occupy the host of ``device`` for a while; return the mark after."""
        end = self._issuers.mark(device) + round(SECOND * seconds)
        self._go_on(device, end, name, "launch")
        return end

    def wait_until(
        self, device: int, mark: int, cost: float | None = None
    ) -> None:
        """Make the host that drives ``device`` wait until a time."""
        if cost is None:
            cost = self.cluster.host.wait_seconds
        end = max(self._issuers.mark(device), mark) + round(SECOND * cost)
        self._go_on(device, end, f"wait for {place_name(device)}", "wait")

    def meet(self, devices: Sequence[int]) -> None:
        """Move the hosts of ``devices`` on to the time of the latest."""
        hosts = self._issuers
        if hosts is self._python and len(hosts.times) > 1 and devices:
            latest = max(hosts.mark(d) for d in devices)
            for d in devices:
                hosts.times[d] = latest

    @property
    def in_backward(self) -> bool:
        """Whether autograd's threads issue."""
        return self._issuers.kind == "backward"

    def await_thread(self, device: int, issued: int) -> None:
        """Move autograd's thread of a device on to when another issued."""
        if self.in_backward:
            times = self._issuers.times
            times[device] = max(times[device], issued)

    def record(self) -> list[Span]:
        """Start a recording; return the list that its spans are added to.

        Its seconds begin at the time of the latest host; what another issues
        before is at negative ones.
        """
        self._recorder = Recorder(self.mark())
        return self._recorder.spans

    def _go_on(self, device: int, end: int, name: str, kind: str) -> None:
        """Move the issuer of ``device`` on to ``end``, and record that."""
        issuers = self._issuers
        number, start = issuers.of(device), issuers.mark(device)
        issuers.times[number] = end
        if self._recorder:
            row = issuers.row(number, len(self._python.times))
            self._recorder.note_host(row, name, kind, start, end)
