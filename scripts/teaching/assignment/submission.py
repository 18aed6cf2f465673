"""Run a submitted notebook in this process, and check its functions.

Usage: submission.py NOTEBOOK ASSIGNMENT RESULTS

The cells run in order. One that fails is noted, and the next one runs, as in a
notebook that is run by hand. Each exercise adds a line of JSON to RESULTS as
soon as it is checked, so that what was checked is there if this process has to
be stopped.
"""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpbook.assignment.grading import refusal
from dpbook.common.checks import all_checks


def run_cells(
    notebook: dict[str, Any], seconds: float
) -> tuple[dict[str, Any], list[str]]:
    """Run the code of a notebook; return its names, and what failed.

    Args:
        notebook: What was submitted. Cells with the tag "check" are for the
            student, and left out: each function is checked once.
        seconds: How long each cell may take.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    failed = []
    code = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    for number, cell in enumerate(code, start=1):
        if "check" in cell["metadata"].get("tags", []):
            continue
        source = "".join(cell["source"])
        try:
            with at_most(seconds):
                exec(compile(source, f"cell {number}", "exec"), names)
        except (Exception, SystemExit) as error:
            kind = type(error).__name__
            failed.append(f"cell {number}: {kind}: {error}")
    return names, failed


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a block that takes longer, where there is SIGALRM.

    Elsewhere the limit for the whole notebook is the only one.
    """
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def why_refused(
    name: str, names: dict[str, Any], seed: int | None, seconds: float
) -> str | None:
    """Return why the function of a notebook is refused; None if it is not.

    Args:
        name: The name of the exercise.
        names: What the notebook has defined.
        seed: The number of the sheet; None: the numbers are the book's.
        seconds: How long the check may take.
    """
    if name not in names:
        return f"the notebook defines no {name}"
    try:
        with at_most(seconds):
            return refusal(name, names[name], seed)
    except (Exception, SystemExit) as error:
        return f"it raised {type(error).__name__}: {error}"


def main() -> None:
    """Run one notebook, and write a line for each exercise."""
    path, assignment, results = map(Path, sys.argv[1:])
    settings = json.loads(assignment.read_text("utf-8"))
    notebook = json.loads(path.read_text("utf-8"))
    seconds = settings["seconds"] / 4
    all_checks()  # takes seconds once, which are not those of an exercise
    names, failed = run_cells(notebook, seconds)
    for name in settings["points"]:
        why = why_refused(name, names, settings["seed"], seconds)
        line = {"exercise": name, "why": why, "failed": failed}
        with results.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")


if __name__ == "__main__":
    main()
