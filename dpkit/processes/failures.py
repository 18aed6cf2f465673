"""What the parent says when a rank fails or is late: who, how, and where.

The first line has the fact and the values, the rest what each rank was doing::

    some ranks had not returned in time (ranks: 0, 2 of 3, timeout_seconds: 60)

    rank 0 was waiting in all_reduce(), called from step() at train.py:31, …
      File "/home/…/train.py", line 31, in step
        dist.all_reduce(gradient)
    rank 2 is stopped, by a signal such as SIGSTOP: it was in load() at …
      File "/home/…/train.py", line 12, in load
        return read(path)
    rank 1 had returned
"""

import signal
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import FrameSummary, StackSummary

import torch

from dpkit.processes.starting import Process
from dpkit.processes.whereabouts import Note, ask, read_answer, read_note

ANSWER_SECONDS = 0.5
NUM_SHOWN = 3
TORCH = str(Path(torch.__file__).parent)
# What most often lies behind a signal that none of us sent.
REASONS = {
    -signal.SIGKILL: (
        "\n\nthe kernel ends a process this way when memory runs out"
    ),
    -signal.SIGABRT: (
        "\n\nits last words are on the error output; gloo aborts a process "
        "when tensors of two ranks differ in size"
    ),
}
# Frames of these are what was called; the innermost other one called it.
LIBRARIES = (
    TORCH,
    str(Path(__file__).parent),
    sysconfig.get_path("stdlib"),
    "<frozen",
)
WAITING = (str(Path(TORCH, "distributed")), str(Path(__file__).parent))


def failure(processes: Sequence[Process], folder: Path) -> str:
    """Describe the rank that failed first."""
    codes = [process.poll() for process in processes]
    found = {path.name for path in folder.iterdir()}
    for rank, code in enumerate(codes):
        if code is not None and not {f"value-{rank}", f"error-{rank}"} & found:
            # Its partners' exceptions, if any, are what this led to.
            return (
                f"a rank ended without a result (rank: {rank} of "
                f"{len(codes)}, {_how(code)})\n\n"
                f"{_last_words(rank, folder.parent)}{REASONS.get(code, '')}"
            )
    _, rank, text = min(torch.load(path) for path in folder.glob("error-*"))
    return (
        f"a rank raised an exception (rank: {rank} of {len(codes)})\n\n{text}"
    )


def lateness(
    processes: Sequence[Process],
    folder: Path,
    late: Sequence[int],
    timeout_seconds: float,
) -> str:
    """Describe what each of the late ranks is doing."""
    head = (
        f"some ranks had not returned in time (ranks: "
        f"{', '.join(map(str, late))} of {len(processes)}, timeout_seconds: "
        f"{timeout_seconds:g})"
    )
    stopped = [r for r in late if _is_stopped(processes[r].pid)]
    now = time.monotonic()
    place = folder.parent
    notes = {r: n for r in late if (n := read_note(place, r))}
    ask({processes[r]: place / f"answer-{r}" for r in notes}, ANSWER_SECONDS)
    notes = {r: read_answer(place, r, n) for r, n in notes.items()}
    told = [_story(r, notes.get(r), now, r in stopped) for r in late]
    told += [
        f"rank {r} had returned"
        for r in range(len(processes))
        if r not in late
    ]
    waiting = [note for r, note in notes.items() if r not in stopped]
    return "\n".join([head, "", *told, *_advice(waiting)])


def _how(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exit code: {code}"
    return f"signal: {-code}, {signal.strsignal(-code)}"


def _last_words(rank: int, folder: Path) -> str:
    """Describe where a rank was before it ended."""
    note = read_note(folder, rank)
    if note is None:
        return f"rank {rank} ended while it started"
    note = read_answer(folder, rank, note)
    return f"rank {rank} was last seen {_place(note)}\n{_stack(note)}".rstrip()


def _story(rank: int, note: Note | None, now: float, is_stopped: bool) -> str:
    """Describe where a rank is that still runs, and since when."""
    told = f"rank {rank} "
    if is_stopped:
        told += "is stopped, by a signal such as SIGSTOP: it "
    if note is None:
        return f"{told}had not started"
    told += f"was {_place(note)}"
    if now - note.since >= 1:
        told += f", for {now - note.since:.1f} s"
    if now - note.seen >= 1 and not is_stopped:
        told += ", and let no other of its threads run"
    return f"{told}\n{_stack(note)}".rstrip()


def _place(note: Note) -> str:
    """Return "waiting in all_reduce(), called from step() at train.py:31"."""
    if note.doing == "joining":
        return "waiting for all ranks to join the group"
    before = "" if note.doing == "running" else f"{note.doing}, "
    if not note.frames:
        return note.doing
    inner = note.frames[-1]
    own = [f for f in note.frames if not _is_in(f, LIBRARIES)]
    if _is_in(inner, WAITING):
        before += "waiting "
    if not own or own[-1] is inner:
        return f"{before}in {_call(inner)}"
    return f"{before}in {inner.name}(), called from {_call(own[-1])}"


def _call(frame: FrameSummary) -> str:
    name = frame.name if frame.name.startswith("<") else f"{frame.name}()"
    return f"{name} at {Path(frame.filename).name}:{frame.lineno}"


def _is_in(frame: FrameSummary, folders: Sequence[str]) -> bool:
    where = frame.filename
    if where.startswith(TORCH):
        return any(where.startswith(f) for f in folders if TORCH in f)
    return "site-packages" not in where and where.startswith(tuple(folders))


def _stack(note: Note) -> str:
    """Return the innermost calls of the user's code, in Python's form."""
    if note.doing == "joining":
        return ""
    own = [f for f in note.frames if not _is_in(f, LIBRARIES)] or note.frames
    return "".join(StackSummary.from_list(own[-NUM_SHOWN:]).format())


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # no such folder on this system: no way to tell
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"


def _advice(notes: Iterable[Note]) -> list[str]:
    """Describe ranks that wait for each other in different calls."""
    inner = [n.frames[-1] for n in notes if n.frames and n.doing == "running"]
    calls = sorted({f.name for f in inner if _is_in(f, WAITING)})
    if len(calls) < 2:
        return []
    return [
        "",
        f"the ranks wait for each other in different calls ({', '.join(calls)}"
        "); each has to make the same calls in the same order",
    ]
