"""What the parent says when a rank fails or is late: who, how, and where.

The first line has the fact and the values, the rest what each rank was doing::

    some ranks had not returned in time (ranks: 0, 2 of 3, timeout_seconds: 60)

    rank 0 was waiting in all_reduce(), called from step() at train.py:31, …
      File "/home/…/train.py", line 31, in step
        dist.all_reduce(gradient)
    rank 2 was in load() at train.py:12, for 58.9 s
      File "/home/…/train.py", line 12, in load
        return read(path)
    rank 1 had returned
"""

import signal
import sysconfig
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from dpkit.processes.locations import (
    Note,
    StackLine,
    ask,
    read_answer,
    read_note,
)
from dpkit.processes.starting import Process

ANSWER_SECONDS = 5.0  # how long a late rank has to say where it is
NUM_SHOWN = 3  # lines of a stack
# What most often lies behind a signal that none of us sent.
REASONS = {
    -signal.SIGKILL: "\n\nthe kernel ends a process this way when memory runs "
    "out",
    -signal.SIGABRT: "\n\nits last words are on the error output; gloo aborts "
    "a process when tensors of two ranks differ in size",
}
TORCH = str(Path(torch.__file__).parent)
RANK = str(Path(__file__).parent)
# Calls in these files wait for other ranks.
WAITING = (str(Path(TORCH, "distributed")), RANK)


def failure(processes: Sequence[Process], folder: Path) -> str:
    """Describe the rank that failed first."""
    size = len(processes)
    found = {path.name for path in folder.iterdir()}
    for rank, process in enumerate(processes):
        is_done = {f"value-{rank}", f"error-{rank}"} & found
        if (code := process.poll()) is not None and not is_done:
            # Its partners' exceptions, if any, are what this led to.
            fact = f"a rank ended without a result (rank: {rank} of {size}"
            how = f"exit code: {code}"
            if code < 0:
                how = f"signal: {-code}, {signal.strsignal(-code)}"
            last = _last_words(rank, folder.parent)
            return f"{fact}, {how})\n\n{last}{REASONS.get(code, '')}"
    _, rank, text = min(torch.load(path) for path in folder.glob("error-*"))
    return f"a rank raised an exception (rank: {rank} of {size})\n\n{text}"


def lateness(
    processes: Sequence[Process],
    folder: Path,
    late: Sequence[int],
    timeout_seconds: float,
) -> str:
    """Describe what each of the late ranks is doing.

    Args:
        processes: Those of all ranks.
        folder: That of the run; the notes of ranks are in its parent.
        late: The ranks that have not returned.
        timeout_seconds: How long the caller allowed, for the first line.
    """
    now = time.monotonic()
    parent = folder.parent
    notes = {r: n for r in late if (n := read_note(parent, r))}
    ask({processes[r]: parent / f"answer-{r}" for r in notes}, ANSWER_SECONDS)
    notes = {r: read_answer(parent, r, n) for r, n in notes.items()}
    size = len(processes)
    names = ", ".join(map(str, late))
    lines = [
        f"some ranks had not returned in time (ranks: {names} of {size}, "
        f"timeout_seconds: {timeout_seconds:g})",
        "",
        *(_story(r, notes.get(r), now) for r in late),
        *(f"rank {r} had returned" for r in range(size) if r not in late),
        *_advice(notes.values()),
    ]
    return "\n".join(lines)


def _last_words(rank: int, folder: Path) -> str:
    """Describe where a rank was before it ended."""
    note = read_note(folder, rank)
    if note is None:
        return f"rank {rank} ended while it started"
    note = read_answer(folder, rank, note)
    return f"rank {rank} was last seen {_where(note)}\n{_stack(note)}".rstrip()


def _story(rank: int, note: Note | None, now: float) -> str:
    """Describe where a rank is that still runs, and since when."""
    if note is None:
        return f"rank {rank} had not started"
    line = f"rank {rank} was {_where(note)}"
    if now - note.since >= 1:
        line += f", for {now - note.since:.1f} s"
    if now - note.seen >= 1:
        line += ", and let no other of its threads run"
    return f"{line}\n{_stack(note)}".rstrip()


def _where(note: Note) -> str:
    """Return "waiting in all_reduce(), called from step() at train.py:31"."""
    if note.doing == "joining":
        return "waiting for all ranks to join the group"
    if not note.calls:
        return note.doing
    before = "" if note.doing == "running" else f"{note.doing}, "
    inner = note.calls[0]
    own = _own(note)
    if inner.file.startswith(WAITING):
        before += "waiting "
    if not own or own[0] is inner:
        return f"{before}in {_show(inner)}"
    return f"{before}in {inner.name}(), called from {_show(own[0])}"


def _show(call: StackLine) -> str:
    name = call.name if call.name.startswith("<") else f"{call.name}()"
    return f"{name} at {Path(call.file).name}:{call.line}"


def _own(note: Note) -> list[StackLine]:
    """Return the calls in the user's code: the innermost called a library."""
    return [call for call in note.calls if not _is_library(call.file)]


def _is_library(file: str) -> bool:
    if file.startswith((TORCH, RANK, "<frozen")):
        return True
    # What pip installed may lie in a folder of the standard library.
    standard = sysconfig.get_path("stdlib")
    return file.startswith(standard) and "site-packages" not in file


def _stack(note: Note) -> str:
    """Return the innermost calls of the user's code, in Python's form."""
    if note.doing == "joining":
        return ""
    shown = (_own(note) or note.calls)[:NUM_SHOWN]
    lines = [(call.file, call.line, call.name, None) for call in shown[::-1]]
    return "".join(traceback.format_list(lines))


def _advice(notes: Iterable[Note]) -> list[str]:
    """Describe ranks that wait for each other in different calls."""
    inner = [n.calls[0] for n in notes if n.calls and n.doing == "running"]
    names = {call.name for call in inner if call.file.startswith(WAITING)}
    if len(names) < 2:
        return []
    advice = "each has to make the same calls in the same order"
    fact = "the ranks wait for each other in different calls"
    return ["", f"{fact} ({', '.join(sorted(names))}); {advice}"]
