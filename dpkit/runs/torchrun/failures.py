"""How a rank has failed: its error, told once, and the lines that led to it.

Frames of PyTorch and of this package are folded: nobody has to mend them::

    File "train.py", line 12, in <module>
      loss.backward()
    … 3 lines of torch and dpkit
"""

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from traceback import FrameSummary
from types import TracebackType
from typing import NamedTuple

import torch

from dpkit.runs.forked.running import RankError, place_of
from dpkit.runs.ranks.error_words import WordsError, in_words
from dpkit.sim.places import LIBRARIES, OWN_FILES

_FOLDED = {
    "torch": os.path.dirname(torch.__file__) + os.sep,
    "dpkit": OWN_FILES + os.sep,
}

# How Python shows errors that led to another.
_HEAD = "Traceback (most recent call last)"
_DIRECT = (
    "The above exception was the direct cause of the following exception:"
)
_DURING = "During handling of the above exception, another exception occurred:"


class Failure(NamedTuple):
    """The error that has ended the script of a rank."""

    error: str  # "ValueError: too few"
    where: str  # the line of the script
    frames: str  # as in Python's traceback, with folds
    notes: tuple[str, ...]  # what is to be said besides


def failure_of(error: BaseException) -> Failure:
    """Return how a script has failed, from its own first line on.

    An exit status that is not 0 has no frames.
    """
    is_status = isinstance(error, WordsError)
    return Failure(
        in_words(error),
        place_of(error),
        "" if is_status else _causes(error) + frames_of(error),
        tuple(_notes(error)),
    )


def _causes(error: BaseException) -> str:
    """Return the errors that led to an error, as Python shows them.

    What a library has caught inside, on its way to the error, is left out:
    its frames do not begin in the script.
    """
    chain: list[tuple[BaseException, str]] = []
    seen = {id(error)}
    while True:
        cause, relation = error.__cause__, _DIRECT
        if cause is None and not error.__suppress_context__:
            cause, relation = error.__context__, _DURING
        if cause is None or id(cause) in seen or not _was_caught(cause):
            break
        seen.add(id(cause))
        chain.insert(0, (cause, relation))
        error = cause
    return "".join(
        f"{frames_of(one)}{in_words(one)}\n\n{relation}\n\n{_HEAD}:\n"
        for one, relation in chain
    )


def _was_caught(error: BaseException) -> bool:
    """Return whether a script, and no library, has caught an error."""
    found = error.__traceback__
    return found is not None and _is_of_script(found)


def _notes(error: BaseException) -> Iterator[str]:
    """Yield an error's notes, and the errors of a group, with their lines."""
    yield from getattr(error, "__notes__", ())
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield f"  {in_words(one)} ({place_of(one)})"
            yield from (f"  {note}" for note in _notes(one))


def frames_of(error: BaseException) -> str:
    """Return the frames of an error, those of torch and dpkit folded."""
    found = error.__traceback__
    while found is not None and not _is_of_script(found):
        found = found.tb_next
    frames = traceback.extract_tb(found or error.__traceback__)
    text = ""
    if isinstance(error, SyntaxError):  # which line it is at
        text = "".join(traceback.format_exception_only(error)[:-1])
    parts = groupby(frames, key=lambda frame: bool(_package(frame)))
    return "".join(_part(list(of), fold) for fold, of in parts) + text


def _part(frames: Sequence[FrameSummary], is_folded: bool) -> str:
    if not is_folded:
        return "".join(traceback.StackSummary.from_list(frames).format())
    names = " and ".join(dict.fromkeys(map(_package, frames)))
    lines = "line" if len(frames) == 1 else "lines"
    return f"  … {len(frames)} {lines} of {names}\n"


def _package(frame: FrameSummary) -> str:
    """Return the package whose frames are folded; "" for all others."""
    for name, folder in _FOLDED.items():
        if frame.filename.startswith(folder):
            return name
    return ""


def _is_of_script(found: TracebackType) -> bool:
    file = found.tb_frame.f_code.co_filename
    return not file.startswith((*LIBRARIES, OWN_FILES))


def print_error(error: BaseException) -> None:
    """Print an error as Python does, with folds."""
    failure = failure_of(error)
    lines = [_traceback(failure, ""), failure.error, *failure.notes]
    print(*filter(None, lines), sep="\n", file=sys.stderr, flush=True)


class RunFailure(NamedTuple):
    """Why a run has failed, each error once."""

    tracebacks: list[str]  # the last is that of the message
    message: str
    notes: list[str]
    lines: list[str]  # at which line each rank was


def run_failure(
    failures: Mapping[int | None, Failure], ended_by: RankError
) -> RunFailure:
    """Return what ranks have failed by.

    Errors of several ranks are one if they are of one line of the script,
    and differ in numbers alone.

    Args:
        failures: By the rank; the first is that of the message.
        ended_by: What has ended the run, with the first error.
    """
    lines = list(getattr(ended_by, "__notes__", ()))
    if not failures:  # an error that no rank has raised
        notes = list(getattr(ended_by.__cause__, "__notes__", ()))
        return RunFailure([], str(ended_by), notes, lines)
    groups: dict[tuple[str, str], list[int | None]] = {}
    for rank, one in failures.items():
        key = one.where, re.sub(r"\d+", "0", one.error)
        groups.setdefault(key, []).append(rank)
    first, *others = groups.values()
    tracebacks = []
    for ranks in others:
        one = failures[ranks[0]]
        head = _traceback(one, _ranks(ranks))
        tracebacks += [head, one.error, *one.notes]
    one = failures[first[0]]
    tracebacks.append(_traceback(one, _ranks(first)))
    known = list(filter(None, tracebacks))
    return RunFailure(known, str(ended_by), list(one.notes), lines)


def _traceback(failure: Failure, ranks: str) -> str:
    if not failure.frames:
        return ""
    whose = f", {ranks}" if ranks else ""
    head = f"{_HEAD[:-1]}{whose}):"
    return f"{head}\n{failure.frames}".rstrip()


def _ranks(ranks: Sequence[int | None]) -> str:
    if None in ranks:
        return ""
    listed = ", ".join(map(str, ranks))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"
