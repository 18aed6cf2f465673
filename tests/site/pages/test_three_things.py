"""The numbers of *If you remember three things* are computed in a cell.

A chapter may take a number from `splitting`, which derives all thresholds.
"""

import json
import re

import pytest

from tests.repository import ROOT

LIST = re.compile(
    r"(?s)\*\*If you remember three things:\*\*\n\n((?:\d\. .*?\n)+)(?:\n|$)"
)
# No results: names of GPUs and types, formulas, and shares that follow from
# them.
NO_RESULTS = re.compile(
    r"[A-Z]\d+s?\b|\d+ bits|float\d+|\d+ %|\$[^$]*\$|^\d\. ", re.M
)
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def printed(cells):
    """Return all that the cells of a chapter print."""
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    texts = [
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in outputs
    ]
    return "\n".join("".join(text) for text in texts)


def cells_of(name):
    path = ROOT / "book" / f"{name}.ipynb"
    return json.loads(path.read_text("utf-8"))["cells"]


def things(cells):
    """Return the list of a chapter, or nothing."""
    prose = ["".join(c["source"]) for c in cells if c["cell_type"] != "code"]
    found = LIST.findall("\n\n".join(prose))
    return found[0] if found else ""


CHAPTERS = [
    path.stem
    for path in sorted(ROOT.glob("book/*.ipynb"))
    if things(cells_of(path.stem))
]


def results(text):
    """Return the numbers of two digits or more."""
    found = NUMBER.findall(NO_RESULTS.sub("", text))
    return {number for number in found if len(number) > 1}


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_numbers_to_remember_are_computed(name):
    cells = cells_of(name)
    source = printed(cells) + printed(cells_of("splitting"))
    missing = results(things(cells)) - set(NUMBER.findall(source))
    assert missing == set(), "no cell prints them"


def test_chapters_with_a_threshold_have_the_list():
    wanted = {"devices", "layer-partitioning", "sharding", "splitting"}
    assert wanted <= set(CHAPTERS)
