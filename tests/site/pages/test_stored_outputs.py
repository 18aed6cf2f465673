"""What a cell has stored, and nbval compares, is the same on each processor.

A number from 1e-30 to 1e-12 is what rounding in float64 leaves between two
ways of one step: it depends on the processor. A cell prints a bound instead
(``dpbook.common.rounding``), and none below 1e-12, as that is too near. A
difference of exactly zero need not be zero elsewhere, so ``0e+00`` counts as
well. The smallest numbers of narrow formats, such as 1e-45, are smaller than
any rounding, and the same everywhere.

What rounding in float32 leaves, about 1e-7, is not told from other small
numbers here. Only a run as another CPU finds it: ``make test ON=other-cpu``.
"""

import json
import re

import pytest

from tests.repository import ROOT

NOTEBOOKS = sorted(ROOT.glob("book/*.ipynb"))
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e[+-]\d+\b")


def rounding(text):
    """Return the numbers in a text that rounding has left."""
    return [
        number
        for number in NUMBER.findall(text)
        if float(number) == 0 or 1e-30 < float(number) < 1e-12
    ]


def compared(notebook):
    """Return the id of each cell that nbval compares, and what it prints."""
    for cell in notebook["cells"]:
        if "nbval-ignore-output" in cell["metadata"].get("tags", []):
            continue
        for output in cell.get("outputs", []):
            plain = output.get("data", {}).get("text/plain", "")
            yield cell["id"], "".join([*output.get("text", ""), *plain])


def test_rounding_is_neither_a_bound_nor_a_constant():
    text = "0e+00, 2e-16 or 6.1e-17; < 1e-12, 2e-07, 1e-45, 0.0, x2e-16"
    assert rounding(text) == ["0e+00", "2e-16", "6.1e-17"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_cell_prints_rounding_as_a_number(path):
    notebook = json.loads(path.read_text())
    found = [
        f"{cell} prints {', '.join(numbers)}"
        for cell, text in compared(notebook)
        if (numbers := rounding(text))
    ]
    assert not found, "\n".join(found)
