"""Each exercise of each chapter: the solution passes, the stub fails.

In a notebook, the cell tagged ``stub`` defines the function to be written, and
the cell tagged ``solution`` defines it again, solved. Both see what the cells
before them, tagged neither, have imported and defined; but nothing is trained
here: only cells of imports and definitions are run.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dpkit.lab.common.checks import all_checks, failure

BOOK = Path(__file__).parent.parent / "book"


class Exercise(NamedTuple):
    chapter: str
    name: str
    stub: Any
    solution: Any


def definitions(source: str) -> str:
    """Keep imports, functions, and the loss, which solutions use."""
    kept = [
        node
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef))
        or (isinstance(node, ast.Assign) and ast.unparse(node)[:6] == "loss =")
    ]
    return "\n".join(ast.unparse(node) for node in kept)


def exercises(path: Path) -> Iterator[Exercise]:
    """Yield the exercises of a chapter, stub and solution in pairs."""
    names: dict[str, Any] = {}
    stubs: dict[str, Any] = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code" or cell["id"].endswith("-setup"):
            continue  # a magic command is no Python
        source = "".join(cell["source"])
        exec(definitions(source), names)
        tags = cell["metadata"].get("tags", [])
        if "stub" in tags or "solution" in tags:
            functions = [
                node.name
                for node in ast.parse(source).body
                if isinstance(node, ast.FunctionDef)
            ]
            name = functions[-1]
            if "stub" in tags:
                stubs[name] = names[name]
            else:
                yield Exercise(path.name, name, stubs.pop(name), names[name])
    assert not stubs, f"{path.name}: without a solution: {list(stubs)}"


PAGES = [p for p in sorted(BOOK.glob("*.ipynb")) if '"stub"' in p.read_text()]
ALL = [e for page in PAGES for e in exercises(page)]


def test_every_check_has_its_exercise():
    assert sorted(e.name for e in ALL) == sorted(all_checks())


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_solution_passes(exercise):
    reason = failure(exercise.solution)
    assert reason is None, f"{exercise.chapter}: {exercise.name}: {reason}"


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_stub_fails(exercise):
    passes = f"{exercise.chapter}: the stub of {exercise.name} passes"
    assert failure(exercise.stub) is not None, passes


def test_a_stub_that_passes_is_named():
    easy = next(e for e in ALL if e.name == "accuracy_on_all")
    said = "data-parallelism.ipynb: the stub of accuracy_on_all passes"
    with pytest.raises(AssertionError, match=said):
        test_stub_fails(easy._replace(stub=easy.solution))
