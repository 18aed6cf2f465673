"""What stands in for the simulated clock in the process of a rank.

It has the methods that the operations of a rank call, those of
``dpkit.sim.clock.interface``. Each is a request to the parent, where the clock
is. So a rank knows no time until it asks for one.
"""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from dpkit.runs.forked.requests import Requests
from dpkit.sim.clock import DEFAULT, SECOND, SHARE_OF_WAIT
from dpkit.sim.hardware import Cluster


class RemoteMark:
    """A mark in a stream, which the clock of the parent has."""

    def __init__(self, requests: Requests, number: int) -> None:
        self._requests = requests
        self.number = number

    @property
    def issued(self) -> int:
        """When the host had issued it, in picoseconds."""
        return int(self._requests.ask("when_issued", self.number))

    def __del__(self) -> None:
        self._requests.add_later("forget_mark", self.number)


class RemoteStreams(list[int]):
    """The current stream of each device; the parent learns of changes."""

    def __init__(self, requests: Requests, num_devices: int) -> None:
        super().__init__([DEFAULT] * num_devices)
        self._requests = requests

    def __setitem__(self, device: Any, number: Any) -> None:
        if self[device] != number:
            super().__setitem__(device, number)
            self._requests.add("set_stream", device, number)


class RemoteHosts:
    """The host of the rank, as the clock of the parent has it."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self.depth = 0  # of backward passes inside each other

    @property
    def in_backward(self) -> bool:
        """Whether autograd's threads issue."""
        return self.depth > 0

    def busy(self, device: int, name: str, seconds: float) -> None:
        """Occupy the host for a while."""
        self._requests.add("busy", device, name, seconds)

    def wait_until(self, device: int, mark: int) -> None:
        """Make the host wait until a time."""
        self._requests.add("wait_until", device, mark)

    def await_thread(self, device: int, issued: int) -> None:
        """Move autograd's thread of a device on to when a copy was issued.

        Args:
            device: The number of the device.
            issued: The number of the copy.
        """
        self._requests.add("await_copy", device, issued)


class RemoteClock:
    """The clock of the parent, as a rank sees it."""

    ranks_alike = 0

    def __init__(self, cluster: Cluster, rank: int, requests: Requests):
        self.cluster = cluster
        self.lock = threading.RLock()
        self.hosts = RemoteHosts(requests)
        self.current = RemoteStreams(requests, cluster.num_devices)
        self._rank = rank
        self._requests = requests
        self._numbers = count()  # of marks and copies
        # Called where the host waits for its whole device.
        self.on_synchronize: Callable[[], None] = lambda: None

    def now(self, device: int | None = None) -> float:
        """Return the time of the host of a device, in seconds."""
        return self.mark(device) / SECOND

    def mark(self, device: int | None = None) -> int:
        """Return the time of :meth:`now` in picoseconds."""
        own = self._rank if device is None else device
        return int(self._requests.ask("mark", own))

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
        """Issue an operation to the current stream of a device."""
        how = {
            "seconds": seconds,
            "num_bytes": num_bytes,
            "flops": flops,
            "launches": launches,
            "phase": phase,
        }
        self._requests.add("compute", (device, name), how)

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
        """Issue a copy; return its number, for :meth:`await_thread`."""
        number = next(self._numbers)
        # Autograd's threads alone wait for a copy that they have not issued.
        kept = number if self.hosts.in_backward else None
        how = {
            "seconds": seconds,
            "num_bytes": num_bytes,
            "blocking": blocking,
            "share": share,
        }
        self._requests.add("copy", kept, (source, target), how)
        return number

    def wait(
        self, device: int, stream: int | None = None, cost: float | None = None
    ) -> None:
        """Make the host wait for what it has issued.

        For a whole device these are also the collectives that are under way.
        """
        if stream is None:
            self.on_synchronize()
        self._requests.add("wait", device, stream, cost)

    # -- streams and events

    def new_stream(self, device: int) -> int:
        """Return the number of a new stream of a device."""
        return int(self._requests.ask("new_stream", device))

    def name_stream(self, device: int, number: int, name: str) -> None:
        """Give a stream a name, for timelines."""
        self._requests.add("name_stream", device, number, name)

    def mark_stream(
        self, device: int, stream: int, *after: RemoteMark
    ) -> RemoteMark:
        """Put a mark at the end of a stream; return it."""
        mark = RemoteMark(self._requests, next(self._numbers))
        numbers = [other.number for other in after]
        self._requests.add("mark_stream", mark.number, device, stream, numbers)
        return mark

    def end_of(self, mark: RemoteMark) -> int:
        """Return when a stream passes a mark, in picoseconds."""
        return int(self._requests.ask("end_of", mark.number))

    def poll(
        self,
        device: int,
        name: str | None = None,
        *,
        share: float = SHARE_OF_WAIT,
    ) -> None:
        """Make the host ask whether a device is done: it costs a moment."""
        self._requests.add("poll", device, name, share)

    def is_done(self, mark: RemoteMark, device: int) -> bool:
        """Return whether a mark is passed at the time of a host."""
        return bool(self._requests.ask("is_done", mark.number, device))

    # -- other threads

    def begin_backward(self) -> None:
        """From now on a thread for each device issues, as autograd's do."""
        self.hosts.depth += 1
        self._requests.add("begin_backward")

    def end_backward(self) -> None:
        """Go on when the last of the threads is done."""
        self.hosts.depth -= 1
        self._requests.add("end_backward")
