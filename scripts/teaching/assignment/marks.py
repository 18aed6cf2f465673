"""Grade submitted notebooks, each in a new process with a time limit.

A notebook is a program of somebody else. It runs with your rights; so grade in
a container, or as a user who may do little.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

RUN = Path(__file__).with_name("submission.py")
ROOT = RUN.parent.parent.parent.parent
RESULTS, ERRORS = "results", "errors"  # files in the folder of a process


class Mark(NamedTuple):
    """What one exercise of one submission earned, and why.

    ``why`` has what the check says where an exercise earned nothing, and the
    cells of the notebook that failed, also where all exercises are solved.
    """

    submission: str
    exercise: str
    points: int
    of: int
    why: str


def grade(submission: Path, assignment: Path) -> list[Mark]:
    """Return the mark of each exercise of a submitted notebook.

    Args:
        submission: The notebook.
        assignment: The file ``assignment.json`` that was made with it. It
            names the points, the seed, and the seconds for a notebook.
    """
    settings = json.loads(assignment.read_text("utf-8"))
    lines, late = _run(submission, assignment, settings["seconds"])
    checked = {line["exercise"]: line for line in lines}
    return [
        Mark(
            submission=str(submission),
            exercise=name,
            points=points if _solved(checked.get(name)) else 0,
            of=points,
            why=_reason(checked.get(name), late),
        )
        for name, points in settings["points"].items()
    ]


def _solved(line: dict[str, Any] | None) -> bool:
    return line is not None and line["why"] is None


def _reason(line: dict[str, Any] | None, stopped: str) -> str:
    """Return why an exercise earned nothing, and which cells failed."""
    if line is None:
        return f"not checked: {stopped}"
    refused = [] if line["why"] is None else [line["why"]]
    return "; ".join([*refused, *line["failed"]])


def _run(
    submission: Path, assignment: Path, seconds: float
) -> tuple[list[dict[str, Any]], str]:
    """Run a notebook; return the lines that it wrote, and how it ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = _start(submission, assignment, folder)
        try:
            status = process.wait(timeout=seconds)
            ended = f"the process ended with status {status}{_last(folder)}"
        except subprocess.TimeoutExpired:
            ended = f"the notebook took longer than {seconds:g} s"
        _end(process)
        lines = (folder / RESULTS).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines], ended


def _start(
    submission: Path, assignment: Path, folder: Path
) -> subprocess.Popen[bytes]:
    """Start a process that runs a notebook in a folder, and writes there."""
    (folder / RESULTS).touch()
    files = submission.resolve(), assignment.resolve(), folder / RESULTS
    with (folder / ERRORS).open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", RUN, *files],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    """Return the environment of a submission, which finds this clone."""
    places = [str(ROOT), str(ROOT / "book"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "DPKIT_DEVICES": "sim",
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
    }


def _last(folder: Path) -> str:
    """Return the last line that a process wrote about errors, in brackets."""
    text = (folder / ERRORS).read_text("utf-8", errors="replace")
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return f" ({said[-1]})" if said else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    with suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def total(marks: Sequence[Mark]) -> str:
    """Return the sum of some marks, such as "3 of 4".

    Example:
        >>> from assignment.marks import Mark, total
        >>> total([Mark("a", "f", 1, 1, ""), Mark("a", "g", 0, 2, "why")])
        '1 of 3'
    """
    return f"{sum(m.points for m in marks)} of {sum(m.of for m in marks)}"
