"""The table of what runs on how many GPUs is that of the record.

If a test fails, the page `gpus` should hold what it prints; or first count
again: python scripts/record.py devices_asked
"""

import ast
import json
import re

import pytest
import yaml

from tests.repository import ROOT

PAGE = (ROOT / "book" / "gpus.md").read_text("utf-8")
CHAPTERS = sorted(ROOT.glob("book/*.ipynb"))
ASKED = json.loads((ROOT / "book/_data/devices_asked.json").read_text())
ROWS = ASKED["chapters"]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
NAMES = [
    name
    for part in TOC["parts"]
    for chapter in part["chapters"]
    for entry in [chapter, *chapter.get("sections", [])]
    if (name := entry["file"].removeprefix("book/")) in ROWS
]


def requests(rows):
    """Return for how many devices a chapter asks, of what kind there is."""
    return sorted(
        {
            k
            for how, k, kind in rows
            if how == "devices" and kind in (None, "gpu") and k
        }
    )


def starts_processes(rows):
    """Return whether a chapter starts processes that take GPUs."""
    # The program train.py, of the chapter cluster, names the CPU itself.
    return any(
        program != "train.py" if how == "torchrun" else program is None
        for how, _, program in rows
        if how != "devices"
    )


def test_the_table():
    lines = []
    for name in NAMES:
        if counts := requests(ROWS[name]):
            cells = [
                ", ".join(str(k) for k in counts if k <= gpus) or "–"
                for gpus in (1, 2, 4, 8)
            ]
            lines.append(f"| {{doc}}`{name}` | {' | '.join(cells)} |\n")
    assert f"| 8 GPUs |\n|---|---|---|---|---|\n{''.join(lines)}\n" in PAGE


def test_the_chapters_that_start_processes():
    *first, last = [
        f"{{doc}}`{name}`" for name in NAMES if starts_processes(ROWS[name])
    ]
    said = f"Besides, {', '.join(first)} and {last} start processes"
    assert said in " ".join(PAGE.split())


def test_every_chapter_was_counted():
    assert {*ROWS} == {path.stem for path in CHAPTERS} == {*NAMES, "index"}


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


def test_what_cells_ask_for_was_counted():
    found = {path.stem: literal_requests(path) for path in CHAPTERS}
    for name, numbers in found.items():
        assert numbers <= {*requests(ROWS[name])}, name
    assert sum(map(len, found.values())) > 8


@pytest.mark.parametrize(
    ("row", "asks", "on_gpus"),
    [
        (["devices", 2, None], [2], False),
        (["devices", 3, "sim"], [], False),
        (["devices", None, None], [], False),
        (["processes", 2, None], [], True),
        (["processes", 2, "gloo"], [], False),
        (["torchrun", 2, "ddp_program.py"], [], True),
        (["torchrun", 2, "train.py"], [], False),  # on the CPU, as it says
    ],
)
def test_what_a_row_of_the_record_means(row, asks, on_gpus):
    assert requests([row]) == asks
    assert starts_processes([row]) == on_gpus
