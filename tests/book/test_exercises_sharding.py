"""The answer to the timeline of the chapter ``sharding`` is what it shows."""

import json

from tests.repository import ROOT

BOOK = ROOT / "book/sharding.ipynb"


def chart():
    cells = json.loads(BOOK.read_text())["cells"]
    (source,) = [
        "".join(cell["source"])
        for cell in cells
        if "ex-read-backward\n\n" in "".join(cell["source"])
    ]
    lines = [line.split() for line in source.splitlines()]
    names = "computes", "gathers", "scatters"
    return {line[0]: line[1:] for line in lines if line and line[0] in names}


def ends(row, name):
    """Return the first tick of a name, and the one after its last."""
    return row.index(name), len(row) - row[::-1].index(name)


def test_five_blocks_are_whole():
    rows = chart()
    assert len({len(row) for row in rows.values()}) == 1
    alive = [0] * len(rows["computes"])
    for b in range(4):
        begin, computed = ends(rows["computes"], f"B{b}")
        _, scattered = ends(rows["scatters"], f"S{b}")
        gathered = 0 if b == 3 else rows["gathers"].index(f"G{b}")
        for tick in [*range(gathered, computed), *range(begin, scattered)]:
            alive[tick] += 1
    assert max(alive) == 5
    assert alive.index(5) == 5


def test_the_device_waits_once_and_the_scatters_never():
    rows = chart()
    computes = rows["computes"]
    _, last = ends(computes, "B0")
    assert [i for i in range(last) if computes[i] == "."] == [4]
    assert rows["gathers"][4] == "G1"
    assert "." not in rows["scatters"][2:]
