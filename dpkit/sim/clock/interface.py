"""What a program asks of the clock, wherever the clock is.

There are two that can be asked: :class:`~dpkit.sim.clock.clock.Clock` itself,
and what stands in for it in the process of a rank, which passes everything on
to the clock of the launch (``dpkit.runs.forked.clock``). The operations of a
program know no more of either than what stands here.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from dpkit.sim.clock.issuers import SHARE_OF_WAIT
from dpkit.sim.hardware.clusters import Cluster

Mark = TypeVar("Mark")  # what the clock has as a mark in a stream


class HostsInterface(Protocol):
    """The hosts that drive the devices."""

    @property
    def in_backward(self) -> bool:
        """Whether autograd's threads issue."""

    def busy(self, device: int, name: str, seconds: float) -> object:
        """Occupy the host of a device for a while."""

    def wait_until(self, device: int, mark: int) -> None:
        """Make the host of a device wait until a time, in picoseconds."""

    def await_thread(self, device: int, issued: int) -> None:
        """Move autograd's thread of a device on to when a copy was issued.

        The copy is given by what :meth:`ClockInterface.copy` has returned.
        """


class ClockInterface(Protocol[Mark]):
    """The clock, as the operations of a program see it.

    :class:`~dpkit.sim.clock.clock.Clock` says what the methods do.
    """

    @property
    def cluster(self) -> Cluster:
        """The hardware whose time it is."""

    @property
    def hosts(self) -> HostsInterface:
        """The hosts that drive the devices."""

    @property
    def current(self) -> list[int]:
        """The current stream of each device, in this thread of Python."""

    @property
    def ranks_alike(self) -> int:
        """For how many device 0 stands, if it does; else 0."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What a thread holds while it issues."""

    def now(self, device: int | None = None) -> float:
        """Return the time of the host of a device, in seconds."""

    def mark(self, device: int | None = None) -> int:
        """Return the time of the host of a device, in picoseconds."""

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
        """Issue a copy; return what ``await_thread`` of the hosts takes."""

    def wait(
        self, device: int, stream: int | None = None, cost: float | None = None
    ) -> None:
        """Make the host of a device wait for what it has issued."""

    def new_stream(self, device: int) -> int:
        """Return the number of a new stream of a device."""

    def name_stream(self, device: int, number: int, name: str) -> None:
        """Give a stream a name, for timelines."""

    def mark_stream(self, device: int, stream: int, *after: Mark) -> Mark:
        """Put a mark at the end of a stream; return it."""

    def end_of(self, work: Mark, /) -> int:
        """Return when a stream passes a mark, in picoseconds."""

    def poll(
        self,
        device: int,
        name: str | None = None,
        *,
        share: float = SHARE_OF_WAIT,
    ) -> None:
        """Make the host ask whether a device is done: it costs a moment."""

    def is_done(self, work: Mark, device: int, /) -> bool:
        """Return whether a mark is passed at the time of a host."""

    def begin_backward(self) -> None:
        """From now on a thread for each device issues, as autograd's do."""

    def end_backward(self) -> None:
        """Go on when the last of the threads is done."""
