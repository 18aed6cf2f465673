"""A listing is the last line of its cell: a notebook displays no other.

``show`` returns what is displayed. Where other lines follow, readers see
nothing of it, and no cell fails.
"""

import ast
import json

import pytest

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))


def is_listing(statement):
    """Return whether a statement is a call of ``show``."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and getattr(statement.value.func, "id", "") == "show"
    )


def unseen(source):
    """Return the listings of a cell that readers do not see."""
    plain = [line for line in source.splitlines() if line[:1] not in "!%"]
    statements = ast.parse("\n".join(plain)).body
    return [ast.unparse(s) for s in statements[:-1] if is_listing(s)]


def test_a_listing_before_another_line_is_found():
    assert unseen("x = 1\nshow(f, g)\nprint(x)") == ["show(f, g)"]
    assert unseen("print(1)\nshow(f)") == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_listings_are_seen(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    found = {
        cell["id"]: listings
        for cell in cells
        if cell["cell_type"] == "code"
        and "remove-cell" not in cell["metadata"].get("tags", [])
        and (listings := unseen("".join(cell["source"])))
    }
    assert found == {}
