"""How long a run has taken, of the time that the machine had for it.

A limit of seconds is to end ranks that hang or compute for too long, and not
ranks that wait for a processor which other programs use. Linux counts for each
thread how long it ran, and how long it was ready to run but had to wait::

    /proc/1234/task/1240/schedstat     525393960 776659087 196
                                       ran       waited            (ns)

Where the threads of all ranks got a third of the time that they wanted, a
second counts as a third. It counts in full where they wanted none, as those
that sleep, and where the system does not say.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# So seldom that the reading costs little: some 20 µs for each thread.
READ_SECONDS = 0.5


class ProcessorUse(NamedTuple):
    """What a thread has had of the processors since it began."""

    ran: float  # seconds
    waited: float  # seconds in which it was ready to run


# What each thread has had, by any name that stays the same.
Uses = dict[str, ProcessorUse]


class RunClock:
    """The seconds of a run that count.

    Args:
        read: Returns what the threads of the run have had so far.
        now: Returns seconds of wall time.
    """

    def __init__(
        self,
        read: Callable[[], Uses],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._now = read, now
        self._counted, self._share = 0.0, 1.0
        self._last, self._uses = now(), read()

    def seconds(self) -> float:
        """Return how many have counted since the clock was made."""
        passed = self._now() - self._last
        if passed < READ_SECONDS:
            return self._counted + passed * self._share
        uses = self._read()
        self._share = share_of_time(self._uses, uses)
        self._counted += passed * self._share
        self._last += passed
        self._uses = uses
        return self._counted


def share_of_time(before: Uses, now: Uses) -> float:
    """Return what part of the time that threads wanted they got.

    Example:
        >>> before = {"a": ProcessorUse(1.0, 5.0)}
        >>> now = {"a": ProcessorUse(1.5, 7.0), "b": ProcessorUse(0.5, 0.0)}
        >>> share_of_time(before, now)
        0.3333333333333333
    """
    pairs = [(now[t], before.get(t, ProcessorUse(0.0, 0.0))) for t in now]
    ran = sum(max(new.ran - old.ran, 0.0) for new, old in pairs)
    waited = sum(max(new.waited - old.waited, 0.0) for new, old in pairs)
    return ran / (ran + waited) if waited else 1.0


def read_uses(pids: Iterable[int]) -> Uses:
    """Return what the threads of processes have had, where the system says."""
    uses: Uses = {}
    for pid in pids:
        with suppress(OSError):  # it has ended, or there is no /proc
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError, ValueError):
                    fields = (task / "schedstat").read_text().split()
                    ran, waited = (1e-9 * int(field) for field in fields[:2])
                    uses[str(task)] = ProcessorUse(ran, waited)
    return uses
