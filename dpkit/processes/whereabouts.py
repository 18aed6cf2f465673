"""Where a rank is: noted by the rank itself, read by the parent.

A thread of the rank looks at the main thread many times a second and writes
into a small file what it sees::

    running 1041.20 1053.31 7fc0       what, since when, last seen, thread
      File "…/distributed_c10d.py", line 3005 in all_reduce
      File "train.py", line 31 in step

The file outlives the rank, so the parent can tell where a killed rank was. A
rank whose main thread holds the interpreter lock notes nothing; the parent
then asks by a signal, and ``faulthandler``, which needs no lock, writes the
stack. Its own clock, ``dump_traceback_later``, could not take the thread's
place: it tells neither since when a rank has been somewhere nor where a rank
was that was killed before, unless it fills a file with stacks.
"""

import ctypes
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
from traceback import FrameSummary
from types import FrameType

from dpkit.processes.starting import Process

# So often that less than a hundredth of the rank's time goes to it.
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.001, 0.05
NOTE_BYTES, NUM_FRAMES = 4096, 24
STACK_LINE = re.compile(r'  File "(.*)", line (\d+) in (.*)')


@dataclass(frozen=True)
class Note:
    """Where a rank was last seen; times are those of time.monotonic()."""

    doing: str  # "importing", "joining", "running", "saving" or "resting"
    since: float  # when it came to this place
    seen: float  # when it was last seen there
    thread: str  # the identifier of its main thread, as stacks have it
    frames: tuple[FrameSummary, ...] = ()  # its calls, outermost first


class Watch:
    """Note in a file of the folder where the main thread of this rank is."""

    def __init__(self, folder: Path, rank: int) -> None:
        # The files stay open as long as the process lives.
        flags = os.O_CREAT | os.O_WRONLY
        self._file = os.open(folder / f"note-{rank}", flags, 0o600)
        self._answer = os.open(folder / f"answer-{rank}", flags, 0o600)
        faulthandler.enable(self._answer)  # a crash is told there as well
        faulthandler.register(signal.SIGUSR1, self._answer)
        self._main = threading.get_ident()
        self._busy = threading.Event()
        self._look = threading.Lock()
        self.doing("importing")
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def doing(self, what: str) -> None:
        """Note what begins now; no one looks while the rank is resting."""
        with self._look:
            self._place: tuple[object, ...] | None = None
            self._since, self._doing, self._text = time.monotonic(), what, ""
            self._pause = FIRST_LOOK_SECONDS
            self._note()
            self._busy.clear() if what == "resting" else self._busy.set()

    def _watch(self) -> None:
        while self._busy.wait():
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, LOOK_SECONDS)
            with self._look:
                if self._busy.is_set():
                    self._see(sys._current_frames()[self._main])
                    self._note()

    def _see(self, frame: FrameType) -> None:
        """Compare with what was seen before; a new place is a new time."""
        frames = _innermost(frame)
        # In a loop the innermost line changes, and it is the same call.
        place = tuple(
            (f.f_code, f.f_lasti if f is not frame else 0) for f in frames
        )
        if place != self._place:
            self._place, self._since = place, time.monotonic()
            self._text = "".join(
                f'  File "{f.f_code.co_filename}", line {f.f_lineno} in '
                f"{f.f_code.co_name}\n"
                for f in frames
            )

    def _note(self) -> None:
        times = f"{self._since} {time.monotonic()}"
        head = f"{self._doing} {times} {self._main:x}\n"
        note = (head + self._text).encode()[:NOTE_BYTES]
        os.pwrite(self._file, note.ljust(NOTE_BYTES), 0)


def _innermost(frame: FrameType | None) -> list[FrameType]:
    """Return the innermost frames, down to the program of the rank."""
    frames: list[FrameType] = []
    while frame is not None and len(frames) < NUM_FRAMES:
        if frame.f_globals.get("__name__") == "dpkit.processes.rank":
            break
        frames.append(frame)
        frame = frame.f_back
    return frames


def read_note(folder: Path, rank: int) -> Note | None:
    """Return what a rank noted last; None if it has not come so far."""
    try:
        text = (folder / f"note-{rank}").read_text(errors="replace")
        doing, since, seen, thread = text.partition("\n")[0].split()
    except (FileNotFoundError, ValueError):
        return None
    return Note(doing, float(since), float(seen), thread, _frames(text))


def read_answer(folder: Path, rank: int, note: Note) -> Note:
    """Correct a note by what faulthandler wrote: when asked, or in a crash."""
    text = (folder / f"answer-{rank}").read_text(errors="replace")
    _, _, stack = text.partition(f"{note.thread} ")
    frames = _frames(stack.partition("\n\n")[0])
    if not frames:
        return note
    is_same = _calls(frames)[-len(note.frames) :] == _calls(note.frames)
    since = note.since if is_same else note.seen
    return replace(note, frames=frames, since=since)


def ask(processes: Mapping[Process, Path], seconds: float) -> None:
    """Ask ranks to write where they are into files; wait a short time."""
    for process in processes:
        _signal_main_thread(process)
        process.send_signal(signal.SIGCONT)  # a stopped one can answer then
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
        if all(path.stat().st_size for path in processes.values()):
            time.sleep(0.02)  # the rest of a stack
            break


def _signal_main_thread(process: Process) -> None:
    """Send SIGUSR1; where it can be, to the main thread alone.

    A stopped process wakes up to it. If any other thread took the signal, the
    main thread would run on meanwhile.
    """
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)
    if tgkill is None:
        process.send_signal(signal.SIGUSR1)
    elif process.poll() is None:
        tgkill(process.pid, process.pid, signal.SIGUSR1)


def _calls(frames: Sequence[FrameSummary]) -> list[tuple[object, ...]]:
    """Return what is the same as long as a rank is in the same calls."""
    calls = [(f.filename, f.lineno, f.name) for f in frames[:-1]]
    return [*calls, *((f.filename, f.name) for f in frames[-1:])]


def _frames(text: str) -> tuple[FrameSummary, ...]:
    """Return the calls outermost first, from a stack innermost first."""
    frames: list[FrameSummary] = []
    for line in text.splitlines():
        found = STACK_LINE.fullmatch(line.rstrip())
        if found and found[1].endswith("dpkit/processes/rank.py"):
            break  # the program of the rank, which called the function
        if found:
            frames.append(FrameSummary(found[1], int(found[2]), found[3]))
    return tuple(reversed(frames))
