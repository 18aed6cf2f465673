"""A watch over the ranks of a launch: are they at work, or do they wait?

A rank that waits for another outside of ``torch.distributed``, such as for a
lock, may wait for ever: a thread keeps its turn, and the other may wait for
this one. What tells it from a rank at work is that the process uses no CPU,
and that no thread of it is ready to. But that is so, too, while a rank
downloads, or while it asks a person. So it is named, and the launch ends only
where there is a limit.
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

from dpkit.runs.ranks.scheduler import Scheduler
from dpkit.sim.places import LIBRARIES

WARN_AFTER = 5.0  # seconds without work
AT_WORK = 0.05  # who uses less of one core than this is not
LIMIT = "DPKIT_IDLE_LIMIT"  # the variable that has the usual limit, in seconds
TASKS = "/proc/{}/task"  # a folder for each thread of a process, on Linux


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


NOWHERE = (
    "at no known line, as where its program is over and what it has put into "
    "a queue is not read yet"
)


class IdleError(RuntimeError):
    """Ranks have done nothing for as long as the limit allows."""


WaitingPlaces = dict[
    "ProgramLine | None", list[int]
]  # a line -> the ranks that wait


class IdleWatch:
    """How long the ranks of a launch that are to work have done nothing.

    A kind of launch says what it is that works, and where ranks wait.
    ``limit`` is the number of seconds after which ranks that do nothing end
    the launch.
    """

    advice = ""  # what follows from it, for the message

    def __init__(self, limit: float = float("inf")) -> None:
        self.limit = limit
        self._warned: set[ProgramLine | None] = set()
        self.last_places: WaitingPlaces = {}
        self._ready: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self.number = self.progress()
        self._since = self._asked = time.monotonic()
        self._used = self.used()

    def progress(self) -> int:
        """Return a number that changes when ranks go on."""
        raise NotImplementedError

    def used(self) -> float:
        """Return the CPU seconds of all workers, except this thread."""
        raise NotImplementedError

    def ready(self) -> set[str]:
        """Return the threads, except for this one, that run or could run."""
        raise NotImplementedError

    def places(self) -> WaitingPlaces:
        """Return where the ranks are that do nothing."""
        raise NotImplementedError

    def seconds(self) -> float:
        """Return since when nothing is done.

        This is to be asked again and again: each time it looks at what has
        been used since it was asked before. On a busy machine that may be
        nothing, although a thread is ready both times.
        """
        now = time.monotonic()
        used = self.used()
        share = (used - self._used) / max(now - self._asked, 1e-9)
        self._asked = now
        self._used = used
        before = self._ready
        self._ready = self.ready() if share <= AT_WORK else set()
        is_at_work = share > AT_WORK or before & self._ready
        if self.number != self.progress() or is_at_work:
            self._begin()
        return self._asked - self._since

    def look(self) -> None:
        """Name ranks and their lines, once, if they have long done nothing.

        Raises:
            IdleError: they have done nothing for as long as the limit.
        """
        seconds = self.seconds()
        if seconds < min(WARN_AFTER, self.limit):
            return
        before = self.last_places
        self.last_places = self.places()
        for place, ranks in self.last_places.items():
            if seconds >= self.limit:
                where = f"{place or NOWHERE}; limit: {self.limit:g} s"
                raise IdleError(self._text(ranks, seconds, where))
            # Elsewhere than just before: it has gone on by now.
            is_new = place not in before or place in self._warned
            if not is_new:
                self._warned.add(place)
                text = self._text(ranks, seconds, place or NOWHERE)
                file, line, _ = place or ProgramLine("a rank", 0, "")
                warnings.warn_explicit(text, RuntimeWarning, file, line)

    def _text(self, ranks: list[int], seconds: float, place: object) -> str:
        listed = ", ".join(map(str, ranks))
        who = (
            f"rank {listed} has" if len(ranks) == 1 else f"ranks {listed} have"
        )
        return (
            f"{who} done nothing for {seconds:.0f} s ({place}). {self.advice}"
        )


class TurnWatch(IdleWatch):
    """How long the rank whose turn it is has done nothing.

    ``program`` is the code that runs the function of a rank.
    """

    advice = (
        "One rank runs at a time: if it waits for another, outside of "
        "torch.distributed, it waits for ever. dist.barrier, dist.send and "
        "dist.recv, and the store let other ranks run"
    )

    def __init__(
        self,
        scheduler: Scheduler,
        program: CodeType,
        limit: float = float("inf"),
    ) -> None:
        self._scheduler = scheduler
        self._program = program
        super().__init__(limit)

    def progress(self) -> int:
        """Return the number of the turn."""
        return self._scheduler.number

    def used(self) -> float:
        """Return the CPU seconds of this process, except this thread."""
        return seconds_here()

    def ready(self) -> set[str]:
        """Return the threads of this process that run or could run."""
        return ready_threads(os.getpid())

    def places(self) -> WaitingPlaces:
        """Return where the rank is whose turn it is."""
        return {self.place(): [self._scheduler.running]}

    def place(self) -> ProgramLine | None:
        """Return where the rank is: in the line that called a library."""
        thread = self._scheduler.threads.get(self._scheduler.running)
        frame = sys._current_frames().get(thread or 0)
        return _place(frame, self._program)


def seconds_here() -> float:
    """Return the seconds of CPU of all threads except for this one."""
    return time.process_time() - time.thread_time()


def ready_threads(process: int) -> set[str]:
    """Return the threads, except for this one, that run or could run.

    The system tells, on Linux: "12 (python) R 1 …" is ready.
    """
    tasks = TASKS.format(process)
    ready: set[str] = set()
    with suppress(OSError):  # another system; or the process has ended
        for task in {*os.listdir(tasks)} - {str(threading.get_native_id())}:
            with suppress(OSError), open(f"{tasks}/{task}/stat") as stat:
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
