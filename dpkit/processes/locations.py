"""Where a rank is: noted by the rank itself, read by the parent.

A thread of the rank looks at the main thread many times a second and writes
into a small file what it sees::

    running 1041.20 1053.31 7fc0       what, since when, last seen, thread
      File "…/distributed_c10d.py", line 3005 in all_reduce
      File "train.py", line 31 in step

The file outlives a rank that is killed, and says since when a rank has been
where it is. A rank whose main thread holds the interpreter lock notes nothing;
the parent then asks by a signal, and ``faulthandler`` writes the stack.
"""

import faulthandler
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from dpkit.processes.run_clock import RunClock, read_uses
from dpkit.processes.starting import Process

# So often that less than a hundredth of the rank's time goes to it.
FIRST_LOOK_SECONDS = 0.001
LOOK_SECONDS = 0.05
NOTE_BYTES = 4096
NUM_CALLS = 24  # that a note has
LINE = re.compile(r'  File "(.*)", line (\d+) in (.*)')
# How faulthandler writes a letter beyond ASCII: "ü" as \xfc, "→" as \u2192.
ESCAPED = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8}))")


class StackLine(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Note:
    """Where a rank was last seen; times are those of time.monotonic()."""

    doing: str  # "importing", "joining", "running", "saving" or "resting"
    since: float  # when it came to this place
    seen: float  # when it was last seen there
    thread: str  # the identifier of its main thread, as stacks have it
    calls: Sequence[StackLine]  # innermost first, as in the file


class Watch:
    """Note in a file of the folder where the main thread of this rank is."""

    def __init__(self, folder: Path, rank: int) -> None:
        # The files stay open as long as the process lives.
        flags = os.O_CREAT | os.O_WRONLY
        self._file = os.open(folder / f"note-{rank}", flags, 0o600)
        answer = os.open(folder / f"answer-{rank}", flags, 0o600)
        faulthandler.enable(answer)  # a crash writes its stack there as well
        faulthandler.register(signal.SIGUSR1, answer)
        self._main = threading.get_ident()
        self._busy = threading.Event()
        self._look = threading.Lock()
        self.doing("importing")
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def doing(self, what: str) -> None:
        """Note what the rank begins now, such as "importing".

        From "resting" to the next call nobody looks where its main thread is.
        """
        with self._look:
            self._doing = what
            self._since = time.monotonic()
            self._place: list[object] = []
            self._pause = FIRST_LOOK_SECONDS
            self._note([])
            if what == "resting":
                self._busy.clear()
            else:
                self._busy.set()

    def _watch(self) -> None:
        while self._busy.wait():
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, LOOK_SECONDS)
            with self._look:
                if self._busy.is_set():
                    calls = _innermost(sys._current_frames()[self._main])
                    if _place(calls) != self._place:
                        self._place = _place(calls)
                        self._since = time.monotonic()
                    self._note(calls)

    def _note(self, calls: Sequence[StackLine]) -> None:
        times = f"{self._since} {time.monotonic()}"
        lines = [f"{self._doing} {times} {self._main:x}"]
        lines += [
            f'  File "{c.file}", line {c.line} in {c.name}' for c in calls
        ]
        note = "\n".join(lines).encode()[:NOTE_BYTES]
        os.pwrite(self._file, note.ljust(NOTE_BYTES), 0)


def _innermost(frame: FrameType | None) -> list[StackLine]:
    calls: list[StackLine] = []
    while frame is not None and len(calls) < NUM_CALLS:
        code = frame.f_code
        calls.append(StackLine(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return calls


def _place(calls: Sequence[StackLine]) -> list[object]:
    """Return what stays the same while a loop changes the innermost line."""
    return [(call.file, call.name) for call in calls[:1]] + [*calls[1:]]


def read_note(folder: Path, rank: int) -> Note | None:
    """Return what a rank noted last; None if it has not noted anything."""
    try:
        note = folder / f"note-{rank}"
        text = note.read_text(encoding="utf-8", errors="replace")
        doing, since, seen, thread = text.partition("\n")[0].split()
    except (FileNotFoundError, ValueError):
        return None
    return Note(
        doing,
        since=float(since),
        seen=float(seen),
        thread=thread,
        calls=_calls(text),
    )


def read_answer(folder: Path, rank: int, note: Note) -> Note:
    """Correct a note by what faulthandler wrote: when asked, or in a crash."""
    text = (folder / f"answer-{rank}").read_text(errors="replace")
    _, _, stack = text.partition(f"{note.thread} ")
    calls = stack_lines(stack.partition("\n\n")[0])
    if not calls:
        return note
    is_same = _place(calls)[: len(note.calls)] == _place(note.calls)
    since = note.since if is_same else note.seen
    return replace(note, calls=calls, since=since)


def stack_lines(stack: str) -> list[StackLine]:
    """Return what faulthandler has written of a thread, innermost first."""
    return _calls(_unescaped(stack))


def _unescaped(stack: str) -> str:
    """Return a stack with its letters beyond ASCII, as other notes have it."""

    def letter(found: re.Match[str]) -> str:
        (code,) = filter(None, found.groups())
        return chr(int(code, 16))

    return ESCAPED.sub(letter, stack)


def _calls(text: str) -> list[StackLine]:
    """Read a stack, innermost call first."""
    calls: list[StackLine] = []
    for line in text.splitlines():
        found = LINE.fullmatch(line.rstrip())
        if found and found[1].endswith("dpkit/processes/rank.py"):
            break  # the program of the rank, which called the function
        if found:
            calls.append(StackLine(found[1], int(found[2]), found[3]))
    return calls


def ask(processes: Mapping[Process, Path], seconds: float) -> None:
    """Ask ranks to write where they are, each into its file.

    Args:
        processes: Process of a rank -> the file that it writes into.
        seconds: How long to wait at most until all files have something in
            them, of the time that the machine has for these ranks.
    """
    for process in processes:
        process.send_signal(signal.SIGUSR1)
    pids = [process.pid for process in processes]
    clock = RunClock(lambda: read_uses(pids))
    while clock.seconds() < seconds:
        time.sleep(0.02)
        if all(path.stat().st_size for path in processes.values()):
            time.sleep(0.02)  # the rest of a stack
            break
