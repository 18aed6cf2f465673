"""Read the exercises of a chapter, each with what its cells need.

An exercise is a text, a cell with the tag ``stub``, and a cell with the tag
``solution``. They use names that earlier cells import or define. An assignment
has no other cell of the chapter, so these imports and definitions come along.
"""

import ast
import builtins
import json
import re
from collections.abc import Iterable
from pathlib import Path
from symtable import Symbol, symtable
from typing import Any, NamedTuple

Cell = dict[str, Any]
BOX = re.compile(
    r"```\{exercise\} (?P<title>.*)\n:label: .*\n\n(?P<text>(?s:.*?))```\n"
    r"(?P<hints>(?s:.*))\Z"
)
END = "```{solution-end}"


class Exercise(NamedTuple):
    """An exercise of a chapter; text and hints are MyST, the rest is code.

    ``setup`` are the lines of earlier cells that the stub or the solution
    uses. ``solution`` defines the function, with what it uses that only
    stands with the solution.
    """

    name: str
    title: str
    text: str
    hints: str
    setup: str
    stub: str
    solution: str


def source_of(cell: Cell) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def tags_of(cell: Cell) -> list[str]:
    """Return the tags of a cell."""
    return cell["metadata"].get("tags", [])


def last_function(code: str) -> str:
    """Return the name of the last function that some code defines."""
    body = ast.parse(code).body
    return [n.name for n in body if isinstance(n, ast.FunctionDef)][-1]


def bound_names(node: ast.stmt) -> set[str]:
    """Return the names that an import, a definition or an assignment binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {a.asname or a.name.split(".")[0] for a in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {t.id for t in node.targets if isinstance(t, ast.Name)}
    return set()


def used_names(code: str) -> set[str]:
    """Return the names that some code reads and has not itself defined."""
    module = symtable(code, "", "exec")
    scopes = [module]
    names: set[str] = set()
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        names |= {
            symbol.get_name()
            for symbol in scope.get_symbols()
            if symbol.is_global() or (scope is module and _only_read(symbol))
        }
    return names - set(vars(builtins))


def _only_read(symbol: Symbol) -> bool:
    return symbol.is_referenced() and not symbol.is_assigned()


def needed(code: str, earlier: Iterable[str]) -> str:
    """Return the statements of earlier cells that some code uses.

    Args:
        code: The code of one cell, or of several.
        earlier: The code of the cells before it, the first one first.
    """
    statements = [
        (cell, node) for cell in earlier for node in ast.parse(cell).body
    ]
    names = used_names(code)
    kept: list[str] = []
    # From the last one to the first: a name is what it was bound to last.
    for cell, node in reversed(statements):
        bound = bound_names(node)
        if bound & names:
            names = (names - bound) | used_names(ast.unparse(node))
            kept.insert(0, ast.get_source_segment(cell, node) or "")
    return joined(kept)


def joined(sources: Iterable[str]) -> str:
    """Join statements, with two empty lines before and after a function."""
    text = ""
    after_block = False
    for source in sources:
        block = source.startswith(("def ", "class ", "@"))
        between = "\n\n\n" if block or after_block else "\n"
        text += f"{between if text else ''}{source}"
        after_block = block
    return text


def title_of(path: Path) -> str:
    """Return the title of a chapter."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    found = re.search(r"(?m)^# (.+)$", "\n".join(map(source_of, cells)))
    return found[1] if found else path.stem


def metadata_of(path: Path) -> dict[str, Any]:
    """Return what a chapter says of itself, such as its language."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))["metadata"]
    return found


def exercises_of(path: Path) -> list[Exercise]:
    """Return the exercises of a chapter, in their order.

    Args:
        path: The chapter, a notebook in which each stub has a solution.
    """
    cells = json.loads(path.read_text("utf-8"))["cells"]
    # The first cell of code holds commands of Jupyter, which are no Python.
    cells = [c for c in cells if not c["id"].endswith("-setup")]
    return [
        _exercise(cells, i)
        for i, cell in enumerate(cells)
        if "stub" in tags_of(cell)
    ]


def _exercise(cells: list[Cell], index: int) -> Exercise:
    """Return the exercise whose stub stands at a place among the cells."""
    stub = source_of(cells[index])
    box = BOX.search(_text_before(cells, index))
    if box is None:
        raise ValueError(f"a stub without an exercise (stub: {stub!r})")
    solved = next(
        i for i in range(index, len(cells)) if "solution" in tags_of(cells[i])
    )
    solution = source_of(cells[solved])
    between = [
        source_of(cell)
        for cell in cells[index + 1 : solved]
        if cell["cell_type"] == "code"
    ]
    helpers = needed(solution, between)
    solution = joined(filter(None, [helpers, solution]))
    given = bound_by(stub)
    setup = needed(f"{stub}\n{solution}", _outside_solutions(cells[:index]))
    return Exercise(
        name=last_function(stub),
        title=box["title"],
        text=box["text"].strip(),
        hints=box["hints"].strip(),
        setup=without(setup, given),
        stub=stub,
        solution=solution,
    )


def answer_of(exercise: Exercise, code: str) -> Any:
    """Return the function that some code defines, below the stub.

    Args:
        exercise: The exercise that the code answers.
        code: What a reader has written.
    """
    names: dict[str, Any] = {}
    exec(f"{exercise.setup}\n{exercise.stub}\n{code}", names)
    return names[exercise.name]


def bound_by(code: str) -> set[str]:
    """Return the names that the statements of some code bind."""
    return set().union(*map(bound_names, ast.parse(code).body))


def without(code: str, names: set[str]) -> str:
    """Leave out the statements that bind nothing but some names."""
    return joined(
        ast.get_source_segment(code, node) or ""
        for node in ast.parse(code).body
        if not bound_names(node) <= names
    )


def _text_before(cells: list[Cell], index: int) -> str:
    """Return the last exercise box before a place, to the end of its cell."""
    texts = [
        source_of(c) for c in cells[:index] if "{exercise}" in source_of(c)
    ]
    return texts[-1][texts[-1].rindex("```{exercise}") :]


def _outside_solutions(cells: list[Cell]) -> list[str]:
    """Return the code of the cells that stand in no exercise."""
    found: list[str] = []
    inside = False
    for cell in cells:
        if cell["cell_type"] == "markdown":
            inside = inside and END not in source_of(cell)
        elif "stub" in tags_of(cell):
            inside = True
        elif not inside:
            found.append(source_of(cell))
    return found
