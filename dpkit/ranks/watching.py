"""A watch over the rank whose turn it is: is it at work, or does it wait?

A rank that waits for another outside of ``torch.distributed``, such as for a
lock, keeps its turn, and waits for ever. What tells it from a rank at work is
that the process uses no CPU. But that is so, too, while a rank downloads, or
while it asks a person: it is named, and nothing else is done about it.
"""

import sys
import sysconfig
import time
import traceback
import warnings
from types import CodeType, FrameType
from typing import NamedTuple

from dpkit.ranks.turns import Turns

WARN_AFTER = 5.0  # seconds without work
AT_WORK = 0.05  # who uses less of one core than this is not
LIBRARIES = tuple({*sysconfig.get_paths().values(), "<frozen"})


class ProgramLine(NamedTuple):
    """A line of a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"line {self.line} of {self.file}, in {self.function}"


class TurnWatch:
    """How long the rank whose turn it is has done nothing.

    ``program`` is the code that runs the function of a rank.
    """

    def __init__(self, turns: Turns, program: CodeType) -> None:
        self._turns, self._program = turns, program
        self._told: set[ProgramLine] = set()
        self._place: ProgramLine | None = None
        self._begin()

    def _begin(self) -> None:
        self.number = self._turns.number  # of the turn
        self._since = self._asked = time.monotonic()
        self._used = time.process_time()

    def seconds(self) -> float:
        """Return since when it does nothing.

        This is to be asked again and again: each time it looks at what the
        process has used since it was asked before.
        """
        now, used = time.monotonic(), time.process_time()
        share = (used - self._used) / max(now - self._asked, 1e-9)
        self._asked, self._used = now, used
        if self.number != self._turns.number or share > AT_WORK:
            self._begin()
        return self._asked - self._since

    def warn(self) -> None:
        """Name the rank and its line, once, if it has long done nothing."""
        rank, before = self._turns.running, self._place
        seconds = self.seconds()
        if seconds < WARN_AFTER:
            return
        self._place = place = self.place()
        # Elsewhere than just before: it has gone on by now.
        if place is None or place != before or place in self._told:
            return
        self._told.add(place)
        text = (
            f"rank {rank} has done nothing for {seconds:.0f} s ({place}). One "
            "rank runs at a time: if it waits for another, outside of "
            "torch.distributed, it waits for ever. dist.barrier, dist.send "
            "and dist.recv, and the store let other ranks run"
        )
        warnings.warn_explicit(text, RuntimeWarning, place.file, place.line)

    def place(self) -> ProgramLine | None:
        """Return where the rank is: in the line that called a library."""
        thread = self._turns.threads.get(self._turns.running)
        frame = sys._current_frames().get(thread or 0)
        return _place(frame, self._program)


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
