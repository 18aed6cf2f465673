"""The table of what runs on how many GPUs agrees with the chapters."""

import ast
import json
import re

import gpu_fits
import pytest
import what_runs_where

from tests.repository import ROOT

CHAPTERS = sorted(ROOT.glob("book/*.ipynb"))
ASKED = json.loads((ROOT / "book/_data/devices_asked.json").read_text())


def test_the_table_is_that_of_the_record():
    """If this fails: python scripts/what_runs_where.py"""
    page = what_runs_where.PAGE.read_text("utf-8")
    assert page == what_runs_where.text()


def test_a_table_that_is_stale_is_found(monkeypatch, capsys):
    other = ASKED["chapters"] | {"practice": [["devices", 7, None]]}
    monkeypatch.setattr(what_runs_where, "record", lambda: other)
    assert what_runs_where.main(check=True) == 1
    assert capsys.readouterr().out == "book/how-to.md: stale\n"


def test_rows():
    rows = [
        ["devices", 5, None],
        ["devices", 2, None],
        ["devices", 3, "sim"],
        ["devices", None, None],
        ["processes", 6, None],
    ]
    assert what_runs_where.requests(rows) == [2, 5]


@pytest.mark.parametrize(
    ("row", "on_gpus"),
    [
        (["processes", 2, None], True),
        (["processes", 2, "gloo"], False),
        (["torchrun", 2, "ddp_program.py"], True),
        (["torchrun", 2, "train.py"], False),  # on the CPU, by its last lines
        (["devices", 2, None], False),
    ],
)
def test_which_processes_take_gpus(row, on_gpus):
    assert what_runs_where.starts_processes([row]) == on_gpus


def test_every_chapter_was_counted():
    assert set(ASKED["chapters"]) == {path.stem for path in CHAPTERS}


def literal_requests(path):
    """Return the numbers of devices that stand in cells, without a kind."""
    numbers = set()
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or re.search(r"^\s*[!%]", source, re.M):
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("devices", "dpkit.devices")
                and len(node.args) == 1
                and not node.keywords
                and isinstance(node.args[0], ast.Constant)
            ):
                numbers.add(node.args[0].value)
    return numbers


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_what_cells_ask_for_was_counted(path):
    """If this fails: python scripts/record.py devices_asked"""
    recorded = what_runs_where.requests(ASKED["chapters"][path.stem])
    assert literal_requests(path) <= set(recorded)


def test_requests_are_seen_in_cells():
    found = [number for path in CHAPTERS for number in literal_requests(path)]
    assert len(found) > 8


def test_the_section_that_the_advice_names_is_there():
    (name,) = re.findall(r'"(.*?)"', gpu_fits.ADVICE)
    assert f"\n## {name}\n" in (ROOT / "README.md").read_text("utf-8")
