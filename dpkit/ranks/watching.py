"""A watch over the rank whose turn it is: is it at work, or does it wait?

A rank that waits for another outside of ``torch.distributed``, such as for a
lock, keeps its turn, and waits for ever. What tells it from a rank at work is
that the process uses no CPU, and that no thread of it is ready to. But that is
so, too, while a rank downloads, or while it asks a person. So it is named, and
the launch ends only where there is a limit.
"""

import os
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from types import CodeType, FrameType
from typing import NamedTuple

from dpkit.ranks.scheduler import Scheduler
from dpkit.sim.places import LIBRARIES

WARN_AFTER = 5.0  # seconds without work
AT_WORK = 0.05  # who uses less of one core than this is not
LIMIT = "DPKIT_IDLE_LIMIT"  # the variable that has the usual limit, in seconds
TASKS = "/proc/self/task"  # a folder for each thread, on Linux


class ProgramLine(NamedTuple):
    """A line of a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"line {self.line} of {self.file}, in {self.function}"


def limit_of(asked: float | None) -> float:
    """Return after how many seconds without work a launch ends.

    Raises:
        ValueError: it is no positive number; or the environment has none.
    """
    if asked is None:
        name = LIMIT
        given = os.environ.get(LIMIT) or "inf"
    else:
        name = "idle_limit"
        given = str(asked)
    with suppress(ValueError):
        limit = float(given)
        if limit > 0:
            return limit
    raise ValueError(f"not a positive number of seconds ({name}: {given!r})")


class TurnWatch:
    """How long the rank whose turn it is has done nothing.

    ``program`` is the code that runs the function of a rank. ``limit`` is the
    number of seconds after which a rank that does nothing ends the launch.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        program: CodeType,
        limit: float = float("inf"),
    ) -> None:
        self._scheduler = scheduler
        self._program = program
        self._limit = limit
        self._warned: set[ProgramLine] = set()
        self._place: ProgramLine | None = None
        self._ready: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self.number = self._scheduler.number  # of the turn
        self._since = self._asked = time.monotonic()
        self._used = _used()

    def seconds(self) -> float:
        """Return since when it does nothing.

        This is to be asked again and again: each time it looks at what the
        process has used since it was asked before. On a busy machine that may
        be nothing, although a thread of it is ready both times.
        """
        now = time.monotonic()
        used = _used()
        share = (used - self._used) / max(now - self._asked, 1e-9)
        self._asked = now
        self._used = used
        before = self._ready
        self._ready = _ready_threads() if share <= AT_WORK else set()
        is_at_work = share > AT_WORK or before & self._ready
        if self.number != self._scheduler.number or is_at_work:
            self._begin()
        return self._asked - self._since

    def look(self) -> None:
        """Name the rank and its line, once, if it has long done nothing.

        Raises:
            RuntimeError: it has done nothing for as long as the limit.
        """
        rank = self._scheduler.running
        before = self._place
        seconds = self.seconds()
        if seconds < min(WARN_AFTER, self._limit):
            return
        self._place = place = self.place()
        if seconds >= self._limit:
            limit = f"limit: {self._limit:g} s"
            raise RuntimeError(_text(rank, seconds, f"{place}; {limit}"))
        # Elsewhere than just before: it has gone on by now.
        if place is None or place != before or place in self._warned:
            return
        self._warned.add(place)
        text = _text(rank, seconds, place)
        warnings.warn_explicit(text, RuntimeWarning, place.file, place.line)

    def place(self) -> ProgramLine | None:
        """Return where the rank is: in the line that called a library."""
        thread = self._scheduler.threads.get(self._scheduler.running)
        frame = sys._current_frames().get(thread or 0)
        return _place(frame, self._program)


def _text(rank: int, seconds: float, place: object) -> str:
    return (
        f"rank {rank} has done nothing for {seconds:.0f} s ({place}). One "
        "rank runs at a time: if it waits for another, outside of "
        "torch.distributed, it waits for ever. dist.barrier, dist.send "
        "and dist.recv, and the store let other ranks run"
    )


def _used() -> float:
    """Return the seconds of CPU of all threads except for this one."""
    return time.process_time() - time.thread_time()


def _ready_threads() -> set[str]:
    """Return the threads, except for this one, that run or could run.

    The system tells, on Linux: "12 (python) R 1 …" is ready.
    """
    if not os.path.isdir(TASKS):
        return set()
    ready = set()
    for task in {*os.listdir(TASKS)} - {str(threading.get_native_id())}:
        with suppress(OSError), open(f"{TASKS}/{task}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "R":
                ready.add(task)
    return ready


# What _place looks at, from the innermost call on:
#
#     wait        threading.py    a library
#     meet        mine.py         found
#     program     launching.py    what a rank has called is inside of it


def _place(
    innermost: FrameType | None, program: CodeType
) -> ProgramLine | None:
    """Return the innermost line that is not in a library, if there is one.

    If the function of the rank is itself in a library: the line there.
    """
    found = None
    for frame, line in traceback.walk_stack(innermost):
        code = frame.f_code
        if code is program:
            break
        found = ProgramLine(code.co_filename, line, code.co_name)
        if not code.co_filename.startswith(LIBRARIES):
            break
    return found
