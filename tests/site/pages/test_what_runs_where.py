"""The table of what runs on how many GPUs is that of the record.

If a test fails, the page `gpus` should hold what it prints; or first count
again: python scripts/record.py cells_on_gpus CHAPTER
"""

import ast
import json
import re

import pytest
import yaml

from tests.repository import ROOT

PAGE = (ROOT / "book" / "gpus.md").read_text("utf-8")
CHAPTERS = sorted(ROOT.glob("book/*.ipynb"))
RECORD = json.loads((ROOT / "book/_data/cells_on_gpus.json").read_text())
ROWS = RECORD["chapters"]
NUM_GPUS = ("1", "2", "4", "8")
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
NAMES = [
    name
    for part in TOC["parts"]
    for chapter in part["chapters"]
    for entry in [chapter, *chapter.get("sections", [])]
    if (name := entry["file"].removeprefix("book/")) in ROWS
]


def test_every_chapter_was_counted_on_each_number_of_gpus():
    assert {*ROWS} == {path.stem for path in CHAPTERS} == {*NAMES, "index"}
    assert all(tuple(row["on_gpus"]) == NUM_GPUS for row in ROWS.values())


def test_the_table():
    lines = []
    for name in NAMES:
        found = ROWS[name]["on_gpus"]
        if any(found.values()):
            cells = [str(ROWS[name]["cells"])]
            cells += [str(found[gpus] or "–") for gpus in NUM_GPUS]
            lines.append(f"| {{doc}}`{name}` | {' | '.join(cells)} |\n")
    head = "| chapter | code cells | 1 GPU | 2 GPUs | 4 GPUs | 8 GPUs |\n"
    assert f"{head}|---|---|---|---|---|---|\n{''.join(lines)}\n" in PAGE


def test_the_chapters_that_use_one_gpu_are_described():
    section = PAGE.split("(gpus-one)=")[1].split("\n## ")[1]
    bullets = "".join(re.findall(r"(?m)^- .*", section))
    described = re.findall(r"\{doc\}`([\w-]+)`", bullets)
    used = [name for name in NAMES if ROWS[name]["on_gpus"]["1"]]
    assert sorted(described) == sorted(used)


def requests(path):
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


@pytest.mark.parametrize("num_gpus", NUM_GPUS)
def test_what_a_cell_asks_for_was_counted(num_gpus):
    """A cell that asks for devices works on GPUs where there are enough."""
    asking = [
        path.stem
        for path in CHAPTERS
        if any(number <= int(num_gpus) for number in requests(path))
    ]
    for name in asking:
        assert ROWS[name]["on_gpus"][num_gpus], name
    assert num_gpus == "1" or len(asking) > 2
