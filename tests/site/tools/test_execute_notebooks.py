"""Stored notebooks have one form, and live cells keep what they say."""

import nbformat
import pytest
from chapters.live_cells import (
    FINGERPRINT,
    fingerprint,
    is_live,
    keep_live,
    mark_live,
)
from chapters.normal_form import as_text, normalise

from tests.repository import ROOT

NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))


def a_cell(source, *outputs, live=True):
    tags = ["nbval-ignore-output"] if live else []
    cell = nbformat.v4.new_code_cell(
        source, metadata={"tags": tags}, outputs=list(outputs)
    )
    return cell


def stream(text):
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def drawn(kind, text, plain):
    data = {kind: text, "text/plain": plain}
    return nbformat.v4.new_output("display_data", data=data)


def a_notebook(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def kept(stored, fresh):
    """Tell whether a fresh cell takes the outputs of the stored one."""
    before, now = a_notebook(stored), a_notebook(fresh)
    mark_live(before)
    keep_live(now, before)
    return now.cells[0].outputs == stored.outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_was_run_and_is_stored_in_normal_form(path):
    stored = nbformat.read(path, as_version=4)
    counts = [c.execution_count for c in stored.cells if "outputs" in c]
    unrun = [
        cell.id
        for cell in stored.cells
        if cell.cell_type == "code" and cell.execution_count is None
    ]
    assert not unrun, f"{path.name}: not run (make execute): {unrun}"
    assert counts == list(range(1, len(counts) + 1)), f"{path.name}: counts"
    normalise(stored)
    text = path.read_text(encoding="utf-8")
    assert text == as_text(stored), f"{path.name}: make execute stores it"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_live_cells_show_what_their_own_source_printed(path):
    changed = [
        cell.id
        for cell in nbformat.read(path, as_version=4).cells
        if is_live(cell)
        and cell.metadata.get(FINGERPRINT) != fingerprint(cell)
    ]
    assert not changed, f"{path.name}: changed since `make execute`: {changed}"


@pytest.mark.parametrize(
    ("stored", "fresh", "same"),
    [
        ("took 1.25 s\n", "took 0.9 s\n", True),
        ("took    9 ms\n", "took 1,200 ms\n", True),
        ("error 2e-07, 10 %\n", "error 1.5e+12, 9 %\n", True),
        ("off by 0.1\n", "off by -0.1\n", True),
        ("   ms\n12.50\n", "  ms\n9.50\n", True),
        ("took 1.25 s\n", "took 1.25 ms\n", False),
        ("a 1\nb 2\n", "a 1\n", False),
        ("exactly: False\n", "exactly: True\n", False),
        (
            "Timer(1.32 ms, simulated (v100))\n",
            "Timer(1.52 ms, simulated (v100))\n",
            False,
        ),
        (
            "0.68, 0.1 s/epoch simulated\n",
            "0.7, 0.1 s/epoch simulated\n",
            True,
        ),
        (
            "0.68, 0.1 s/epoch simulated\n",
            "0.7, 0.2 s/epoch simulated\n",
            False,
        ),
    ],
)
def test_live_outputs_are_kept_if_only_numbers_differ(stored, fresh, same):
    stored, fresh = a_cell("f()", stream(stored)), a_cell("f()", stream(fresh))
    assert kept(stored, fresh) is same


def test_live_pictures_are_kept_but_not_one_instead_of_another_kind():
    stored = a_cell("f()", drawn("image/svg+xml", "<svg/>", "<bars: a 1>"))
    redrawn = a_cell(
        "f()", drawn("image/svg+xml", "<svg>b</svg>", "<bars: a 2>")
    )
    other = a_cell("f()", drawn("image/png", "abc", "<bars: a 1>"))
    named = a_cell("f()", drawn("image/svg+xml", "<svg/>", "<bars: b 1>"))
    assert kept(stored, redrawn)
    assert not kept(stored, other)
    assert not kept(stored, named)


def test_outputs_of_another_source_are_not_kept():
    stored, fresh = stream("took 1 s\n"), stream("took 2 s\n")
    assert kept(a_cell("f()", stored), a_cell("f()", fresh))
    assert not kept(a_cell("f()", stored), a_cell("g()", fresh))


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("from a import f\n\nf()", "from b.c import f\n\nf()", True),
        (
            "import x\nfrom a import f, g\nf()",
            "from b import (\n    f,\n    g,\n)\nimport x\n\nf()",
            True,
        ),
        ("from a import f\nf(1)", "from a import f\nf(2)", False),
        ("f()\n\ng()", "f()\ng()", False),
        ("important = 1", "important = 2", False),
    ],
)
def test_a_function_that_moved_does_the_same(before, now, same):
    assert kept(a_cell(before, stream("1")), a_cell(now, stream("2"))) is same


def test_outputs_of_a_cell_that_is_not_live_are_never_kept():
    """Not even where the tag has just been taken away."""
    fresh = a_cell("f()", stream("2"), live=False)
    assert not kept(a_cell("f()", stream("1"), live=False), fresh)
    assert not kept(a_cell("f()", stream("1"), live=True), fresh)
