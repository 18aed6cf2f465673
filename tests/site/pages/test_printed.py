"""What the first part teaches is printed: none of its names is only imported.

A sentence that begins a paragraph, or a heading, promises the functions of
the library and of the book that it names. Their source stands on the page, or
on a page before it: as a cell, or shown by one.
"""

import ast
import json
import re

import pytest
import yaml

from tests.repository import ROOT

TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
(PART,) = [p for p in TOC["parts"] if p["caption"] == "The three ways"]
PAGES = [entry["file"] for entry in PART["chapters"]]
# They make devices, data and processes, or count; no page is about them.
TOOLS = {"Batches", "devices", "launch", "lenet_params", "sent", "torchrun"}
# Their forward is printed or built by hand, and a sentence says what their
# constructor does. What runs the actions of Pipeline is printed: Interpreter.
SAID = {
    "ColumnParallelLinear",
    "DataParallel",
    "ParallelMLP",
    "Pipeline",
    "RowParallelLinear",
}
MODULES = {"schedules"}
IN_BACKTICKS = re.compile(r"`(?:dpkit\.|lp\.)?(\w+)(?:\([^`]*\))?`")
BOX = re.compile(r"(?ms)^:::.*?^:::$")


def sources(cells):
    """Return the code of all cells."""
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]


def imported(cells):
    """Return the names that the cells take from the library and the book."""
    found = set()
    for source in sources(cells):
        if "!git" in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                if node.module.partition(".")[0] in ("dpkit", "dpbook"):
                    found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute):
                if getattr(node.value, "id", "") in ("dpkit", "lp"):
                    found.add(node.attr)
    return found


def printed(cells):
    """Return the functions and classes whose source a reader sees."""
    listings = [
        "".join(output.get("data", {}).get("text/markdown", ""))
        for cell in cells
        for output in cell.get("outputs", ())
    ]
    text = "\n".join([*sources(cells), *listings])
    return set(re.findall(r"(?m)^ *(?:def|class) (\w+)", text))


def promised(cells):
    """Return what headings, and first sentences of paragraphs, name."""
    texts = [
        BOX.sub("", "".join(cell["source"]))
        for cell in cells
        if cell["cell_type"] == "markdown"
    ]
    found = set()
    for paragraph in re.split(r"\n\n+", "\n\n".join(texts)):
        first = re.split(r"(?<=[.:?])\s", paragraph.strip())[0]
        found |= set(IN_BACKTICKS.findall(first))
    return found


def only_imported(cells, before=frozenset()):
    """Return what a page promises and does not print.

    Args:
        cells: Those of the page.
        before: What the pages before it print.
    """
    known = printed(cells) | before | TOOLS | SAID | MODULES
    return promised(cells) & imported(cells) - known


def cells_of(page):
    return json.loads((ROOT / f"{page}.ipynb").read_text("utf-8"))["cells"]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_promises_is_printed(page):
    pages = PAGES[: PAGES.index(page)]
    before = {name for p in pages for name in printed(cells_of(p))}
    assert only_imported(cells_of(page), before) == set()


def cell(kind, source, listing=""):
    output = {"data": {"text/markdown": listing}}
    return {"cell_type": kind, "source": source, "outputs": [output]}


def test_a_name_that_is_only_imported_is_found():
    text = cell("markdown", "## Shards\n\n`scatter` cuts the rows. Not `me`:")
    code = cell("code", "import dpkit\ndpkit.scatter(x, dpkit.me)")
    assert only_imported([text, code]) == {"scatter"}
    shown = cell("code", "show(dpkit.scatter)", "def scatter(x):\n    …")
    assert only_imported([text, code, shown]) == set()
    assert only_imported([text, code], {"scatter"}) == set()


def test_the_pages_promise_something():
    names = {name for page in PAGES for name in promised(cells_of(page))}
    assert {"scatter", "allreduce", "train_batch", "estimate"} <= names
