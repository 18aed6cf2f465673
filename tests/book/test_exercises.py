"""Each exercise of each chapter: the solution passes, the stub fails.

In a notebook, the cell tagged ``stub`` defines the function to be written, and
the cell tagged ``solution`` defines it again, solved. Both see what the cells
before them, tagged neither, have imported and defined; but nothing is trained
here: only cells of imports and definitions are run.
"""

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dpbook.common.checks import all_checks, failure
from tests.repository import ROOT

BOOK = ROOT / "book"


class Exercise(NamedTuple):
    stub: Any
    solution: Any


def code_cells(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the source and the tags of each code cell but the first."""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        # The first has a magic command, which is no Python.
        if cell["cell_type"] == "code" and not cell["id"].endswith("-setup"):
            yield "".join(cell["source"]), {*cell["metadata"].get("tags", [])}


def last_function(source: str) -> str:
    functions = ast.FunctionDef
    names = [
        n.name for n in ast.parse(source).body if isinstance(n, functions)
    ]
    return names[-1]


def definitions(source: str) -> str:
    """Keep imports, functions, and the loss, which solutions use."""
    kept = [
        node
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef))
        or (isinstance(node, ast.Assign) and ast.unparse(node)[:6] == "loss =")
    ]
    return "\n".join(ast.unparse(node) for node in kept)


@cache
def exercises(path: Path) -> dict[str, Exercise]:
    """Return the exercises of a chapter, by name: its imports take seconds."""
    names: dict[str, Any] = {}
    stubs: dict[str, Any] = {}
    found: dict[str, Exercise] = {}
    for source, tags in code_cells(path):
        exec(definitions(source), names)
        if "stub" in tags:
            name = last_function(source)
            stubs[name] = names[name]
        elif "solution" in tags:
            name = last_function(source)
            found[name] = Exercise(stubs.pop(name), names[name])
    assert not stubs, f"{path.name}: without a solution: {list(stubs)}"
    return found


# Each exercise, and the page it stands on.
PAGES = {
    last_function(source): path
    for path in sorted(BOOK.glob("*.ipynb"))
    for source, tags in code_cells(path)
    if "stub" in tags
}


def test_every_check_has_its_exercise():
    assert sorted(PAGES) == sorted(all_checks())


@pytest.mark.parametrize("name", PAGES)
def test_solution_passes(name):
    reason = failure(exercises(PAGES[name])[name].solution)
    assert reason is None, f"{PAGES[name].name}: {name}: {reason}"


@pytest.mark.parametrize("name", PAGES)
def test_stub_fails(name):
    passes = f"{PAGES[name].name}: the stub of {name} passes"
    assert failure(exercises(PAGES[name])[name].stub) is not None, passes


def test_a_stub_that_passes_is_named(monkeypatch):
    name = "accuracy_on_all"
    found = exercises(PAGES[name])
    solved = found[name].solution
    monkeypatch.setitem(found, name, Exercise(solved, solved))
    said = f"data-parallelism.ipynb: the stub of {name} passes"
    with pytest.raises(AssertionError, match=said):
        test_stub_fails(name)
