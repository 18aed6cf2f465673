"""The program that runs plain notebooks as readers do names what is wrong.

`make test ON=plain` runs all of them, in several minutes.
"""

import json
import re

import nbformat
import pytest
import run_plain
from nbclient.exceptions import CellExecutionError
from plain_notebooks import plain

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))


def read(notebook):
    return nbformat.reads(json.dumps(notebook), as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_stub_gets_its_solution(path):
    chapter = json.loads(path.read_text(encoding="utf-8"))
    notebook = read(plain(chapter, path.stem, str))
    answers = run_plain.solutions(read(chapter))
    run_plain.fill_in(notebook, answers)
    filled = [
        cell.source
        for cell, tags in run_plain.code_cells(notebook)
        if "stub" in tags
    ]
    assert len(filled) == len(answers)
    for source in filled:
        last = re.findall(r"(?m)^def (\w+)", source)[-1]
        assert source.count(f"def {last}(") == 2
    # Without the stubs nothing of a solution would be there.
    text = "\n".join(cell.source for cell in notebook.cells)
    assert all(text.count(answer) == 1 for answer in answers)


def code(source, *tags):
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)})


CHAPTER = [
    code("def f():\n    pass", "stub"),
    code("check(f)"),
    code("def one():\n    return 1"),
    code("def f():\n    return one()", "solution"),
    code("check(f)"),
]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ({}, []),
        ({"open": "f: solved"}, ["a.ipynb, stubs open: f is solved"]),
        ({"filled in": "f: not yet (1)"},
         ["a.ipynb, stubs filled in: f is not yet"]),
        ({"open": ""}, ["a.ipynb, stubs open: a check is missing (exercises: "
                        "1, verdicts: 0)"]),
        ({"open": None}, ["a.ipynb, stubs open: a cell failed\nwhy"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(printed, expected, tmp_path, monkeypatch):
    """The notebooks are not run: the checks print what the test says."""
    right = {"open": "f: not yet (returned None)", "filled in": "f: solved"}

    def execute(notebook, folder):
        assert sorted(path.name for path in folder.iterdir()) == [
            "_data",
            "elsewhere",
        ]
        stub, check = notebook.cells
        state = "filled in" if "return one()" in stub.source else "open"
        assert ("def one()" in stub.source) == (state == "filled in")
        said = {**right, **printed}[state]
        if said is None:
            raise CellExecutionError("why", "Error", "")
        check.outputs = [nbformat.v4.new_output("stream", text=said)]

    monkeypatch.setattr(run_plain, "execute", execute)
    for name, cells in {"plain": CHAPTER[:2], "chapter": CHAPTER}.items():
        (tmp_path / name).mkdir()
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbformat.write(notebook, tmp_path / name / "a.ipynb")
    (tmp_path / "runs").mkdir()
    found = run_plain.faults(
        tmp_path / "plain/a.ipynb",
        tmp_path / "chapter/a.ipynb",
        tmp_path / "runs",
    )
    assert found == expected
