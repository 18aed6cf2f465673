"""What stands open on a page needs nothing that is folded away.

A cell with one of the tags ``FOLDED`` shows no code until a reader unfolds
it, and so does a solution. Cells that a predict box folds are open: the
reader unfolds them by answering.
"""

import ast
import builtins
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from words import FOLDED

BOOK = Path(__file__).parents[3] / "book"
CHAPTERS = sorted(path.name for path in BOOK.glob("*.ipynb"))


def defined(tree: ast.AST) -> set[str]:
    """Return the names that a cell assigns, imports or defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            aliases = (alias.asname or alias.name for alias in node.names)
            names |= {alias.partition(".")[0] for alias in aliases}
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def used(trees: Iterable[ast.AST]) -> set[str]:
    """Return the names that parts of a cell read."""
    return {
        node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    } - {*dir(builtins)}


def open_cells(cells: list[dict]) -> dict[str, ast.Module]:
    """Return the code of each cell that stands open, by its id."""
    return {
        cell["id"]: ast.parse("".join(cell["source"]))
        for cell in cells
        if cell["cell_type"] == "code"
        and not (FOLDED | {"solution"}) & {*cell["metadata"].get("tags", [])}
    }


def out_of_sight(cells: list[dict]) -> Iterator[tuple[str, list[str]]]:
    """Yield each open cell with the names that only folded cells define.

    What a function reads may be defined by a later cell, since it is called
    after it.
    """
    trees = open_cells(cells)
    anywhere = {name for tree in trees.values() for name in defined(tree)}
    seen = set()
    for id, tree in trees.items():
        seen |= defined(tree)
        later = [x for x in tree.body if isinstance(x, ast.FunctionDef)]
        at_once = [x for x in tree.body if x not in later]
        missing = (used(at_once) - seen) | (used(later) - anywhere)
        if missing:
            yield id, sorted(missing)


@pytest.mark.parametrize("name", CHAPTERS)
def test_open_cells_use_what_stands_open(name):
    cells = json.loads((BOOK / name).read_text("utf-8"))["cells"]
    assert dict(out_of_sight(cells)) == {}


def cell(id, source, *tags):
    return {
        "cell_type": "code",
        "id": id,
        "metadata": {"tags": [*tags]},
        "source": source.splitlines(keepends=True),
    }


@pytest.mark.parametrize("tag", sorted(FOLDED))
def test_a_folded_definition_is_found(tag):
    folded = cell("a", "import torch\ndef f(x): return g(x)", tag)
    open_ = cell("b", "y = [f(x) for x in torch.arange(3)]\nprint(y)")
    assert dict(out_of_sight([folded, open_])) == {"b": ["f", "torch"]}
    assert dict(out_of_sight([cell("a", folded["source"][0]), folded])) == {}
    here = cell("b", "import torch\ndef f(x): return x\nf(torch.ones(2))")
    assert dict(out_of_sight([folded, here])) == {}


def test_a_function_may_use_what_a_later_cell_defines():
    step = cell("a", "def step(x): return add(x)")
    assert dict(out_of_sight([step, cell("b", "def add(x): return x")])) == {}
    folded = cell("b", "def add(x): return x", "hide-cell")
    assert dict(out_of_sight([step, folded])) == {"a": ["add"]}
    called = cell("a", "def step(x): return add(x)\ny = add(1)")
    later = cell("b", "def add(x): return x")
    assert dict(out_of_sight([called, later])) == {"a": ["add"]}
