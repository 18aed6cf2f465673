"""A watch over ranks that are processes: do all of them wait?

A rank that waits for a file that another is to write waits rightly, as long
as that one is at work. So ranks are named where no process of any rank is::

    rank 0   has the lock, and waits in a barrier          waits for rank 1
    rank 1   waits for the lock, asks for nothing          named, with its line

Where a rank is its process writes when a signal asks for it, by
``faulthandler``: also while Python waits in C.
"""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from dpkit.processes import stack_lines
from dpkit.processes.run_clock import RunClock, read_uses
from dpkit.runs.forked.proxy import Proxy, seconds_used
from dpkit.runs.ranks.watching import (
    IdleWatch,
    ProgramLine,
    WaitingPlaces,
    ready_threads,
    seconds_here,
)
from dpkit.sim.places import LIBRARIES, OWN_FILES

LOOK_EVERY = 0.5  # seconds
# A signal that no script should use. Ranks are forked on Linux alone.
ASKS = signal.SIGRTMAX if sys.platform == "linux" else signal.SIGTERM
_ANSWER_WITHIN = 1.0  # seconds, as RunClock counts
_OWN_THREAD = "Current thread"  # faulthandler's word for the one that hears


class WatchedRank(Protocol):
    """A rank that is a process, for the watch."""

    pid: int
    proxy: Proxy
    stack: int  # the file into which it writes where it is


class ProcessWatch(IdleWatch):
    """How long no process of a rank has done anything."""

    advice = (
        "No other rank is at work: if it waits for one of them, outside of "
        "torch.distributed, it may wait for ever. Ctrl-C ends the launch, "
        "and so does the option --idle-limit SECONDS"
    )

    def __init__(self, ranks: Sequence[WatchedRank], limit: float) -> None:
        self._ranks = ranks
        self._looked = 0.0
        super().__init__(limit)

    def look(self) -> None:
        """Look, twice a second: what the system tells it counts in ticks.

        Raises:
            IdleError: no rank has done anything for as long as the limit.
        """
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            super().look()

    def progress(self) -> int:
        """Return how often ranks have asked for something."""
        return sum(one.proxy.heard for one in self._ranks)

    def used(self) -> float:
        """Return the seconds of CPU of this process and those of ranks."""
        return seconds_here() + sum(map(seconds_used, self._processes()))

    def ready(self) -> set[str]:
        """Return the threads of all these that run or could run."""
        return set().union(*map(ready_threads, self._processes()))

    def _processes(self) -> list[int]:
        """Return the processes of ranks, and what they have started."""
        sessions = {one.pid for one in self._ranks}
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):  # it has ended
                if name.isdigit() and os.getsid(int(name)) in sessions:
                    found.append(int(name))
        return found

    def places(self) -> WaitingPlaces:
        """Return where the ranks are that ask for nothing."""
        places: WaitingPlaces = {}
        for rank, one in enumerate(self._ranks):
            if one.proxy.awaits:
                places.setdefault(_place(one), []).append(rank)
        return places


@contextmanager
def postponing_questions() -> Iterator[None]:
    """Fork a process in this block: it may be asked before it can answer.

    The signal that asks it waits until it calls :func:`tell_when_asked`. Else
    the signal would end the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {ASKS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def tell_when_asked(stack: int) -> None:
    """Write where this process is into a file, when a signal asks for it."""
    faulthandler.register(ASKS, stack, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ASKS})


def _place(rank: WatchedRank) -> ProgramLine | None:
    """Return the line of its program at which a rank is, if it tells.

    A program that is over may wait for its threads: then the line is theirs.
    A process that is stopped never answers.
    """
    os.ftruncate(rank.stack, 0)
    os.lseek(rank.stack, 0, os.SEEK_SET)
    with suppress(ProcessLookupError):
        os.kill(rank.pid, ASKS)
    clock = RunClock(lambda: read_uses([rank.pid]))
    text = ""
    is_whole = False
    while not is_whole and clock.seconds() < _ANSWER_WITHIN:
        time.sleep(0.01)
        text = os.pread(rank.stack, 100_000, 0).decode(errors="replace")
        is_whole = _OWN_THREAD in text and text.endswith("\n")
    others, _, own = text.partition(_OWN_THREAD)
    for part in own, others:
        for line in stack_lines(part):  # innermost first
            if line.name == "_run_rank":
                break  # what has called it is the program of the parent
            if not line.file.startswith((*LIBRARIES, OWN_FILES, "<frozen")):
                return ProgramLine(*line)
    return None
