"""The notebook that a page hands out has the exercises, and no solution."""

import json

import pytest
from plain_notebooks import without_solutions

from tests.book.test_exercises import CHAPTERS, SOLUTIONS, STUBS


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_students_notebook_has_no_solution(path):
    notebook = json.loads(path.read_text("utf-8"))
    cells = without_solutions(notebook, path.stem)
    kept = ["".join(cell["source"]) for cell in cells]
    text = "\n".join(kept)
    for name, solution in SOLUTIONS.items():
        body = solution.split(":\n", 1)[1].strip()
        assert body not in text, name
    assert "solution-start" not in text
    assert "solution-end" not in text
    own = [code for name, code in STUBS.items() if f"check({name})" in text]
    assert all(stub in kept for stub in own)
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    if own:
        first = next(i for i, found in enumerate(tags) if "stub" in found)
        shown = [o for c in cells[first:] for o in c.get("outputs", ())]
        assert all("<figure" in o["data"]["text/html"][0] for o in shown)
    before = len(notebook["cells"]) if not own else first
    assert cells[:before] == notebook["cells"][:before]


def test_what_follows_a_solution_in_its_cell_stays():
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": text}
        for text in (
            "Try.\n```{solution-start} ex-a\n```\nAdd.",
            "and more",
            "So.\n```{solution-end}\n```\n\nNext.",
        )
    ]
    found = without_solutions({"cells": cells}, "page")
    texts = ["".join(cell["source"]) for cell in found]
    where = "*The solution stands in {doc}`the page of the chapter <page>`.*"
    assert texts == [f"Try.\n{where}", "Next."]
