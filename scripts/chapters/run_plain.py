"""Run plain notebooks from the top, as a reader who solves the exercises.

Usage: python scripts/chapters/run_plain.py SITE book/*.ipynb

SITE is the built site. Each of its plain notebooks runs twice, in a folder
with the records and nothing else: with open stubs, which every check has to
refuse, and with the chapter's solutions filled in, which every check has to
accept. No cell may fail. Nothing is stored.
"""

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from run_cells import execute

ROOT = Path(__file__).parent.parent.parent
RECORDS = ("_data", "elsewhere")  # in book/; cells read them by a path
VERDICT = re.compile(r"(?m)^(\w+): (solved|not yet)")


def code_cells(notebook: NotebookNode) -> list[tuple[NotebookNode, list[str]]]:
    """Return each cell of code, and its tags."""
    return [
        (cell, cell.metadata.get("tags", []))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def solutions(chapter: NotebookNode) -> list[str]:
    """Return the solution of each exercise, with the cells that it needs."""
    found = []
    parts: list[str] = []
    for cell, tags in code_cells(chapter):
        if "stub" in tags:
            parts = []
        elif not cell.source.startswith("check("):
            parts.append(cell.source)
        if "solution" in tags:
            found.append("\n\n\n".join(parts))
    return found


def fill_in(plain: NotebookNode, answers: list[str]) -> None:
    """Write an answer below each stub; what the stub imports stays."""
    stubs = [cell for cell, tags in code_cells(plain) if "stub" in tags]
    for stub, answer in zip(stubs, answers, strict=True):
        stub.source = f"{stub.source}\n\n\n{answer}"


def verdicts(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Return what the checks of a notebook printed: a name and a verdict."""
    outputs: list[dict[str, Any]] = [
        output for cell, _ in code_cells(notebook) for output in cell.outputs
    ]
    text = "".join(output.get("text", "") for output in outputs)
    return VERDICT.findall(text)


def run(notebook: NotebookNode, folder: Path) -> None:
    """Run a notebook in a new folder, next to the records.

    Raises:
        CellExecutionError: A cell has failed.
    """
    folder.mkdir()
    for name in RECORDS:
        (folder / name).symlink_to(ROOT / "book" / name)
    execute(notebook, folder)


def faults(path: Path, chapter: Path, folder: Path) -> list[str]:
    """Run a plain notebook twice; return what is wrong, and print seconds."""
    answers = solutions(nbformat.read(chapter, as_version=4))
    found = []
    for state, verdict in (("open", "not yet"), ("filled in", "solved")):
        notebook = nbformat.read(path, as_version=4)
        if state == "filled in":
            fill_in(notebook, answers)
        start = time.perf_counter()
        try:
            run(notebook, folder / verdict)
        except CellExecutionError as error:
            found.append(f"{path.name}, stubs {state}: a cell failed\n{error}")
            continue
        said = verdicts(notebook)
        seconds = time.perf_counter() - start
        print(f"{path.name}, stubs {state}: {seconds:.0f} s", flush=True)
        found += [
            f"{path.name}, stubs {state}: {name} is {other}"
            for name, other in said
            if other != verdict
        ]
        if len(said) != len(answers):
            counts = f"exercises: {len(answers)}, verdicts: {len(said)}"
            found.append(f"{path.name}, stubs {state}: a check is missing "
                         f"({counts})")  # fmt: skip
    return found


def main() -> int:
    """Run the plain notebooks of some chapters; return the exit status."""
    site, *chapters = map(Path, sys.argv[1:])
    found = []
    for chapter in chapters:
        path = site / "_sources" / "book" / chapter.name
        with tempfile.TemporaryDirectory() as folder:
            found += faults(path, chapter, Path(folder))
    for fault in found:
        print(fault, file=sys.stderr, flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
