"""The recorder of mistakes that are planted into scripts of others."""

import json
from collections import Counter
from pathlib import Path

import pytest
from recorders.planted_mistakes import RECORD
from recorders.provenance import DATA
from recorders.public.planting import (
    Edit,
    Mistakes,
    Plant,
    Planter,
    edit,
    judged,
    name_of,
    read_mistakes,
)
from recorders.public.said import alarms
from recorders.public.table import PublicScript, read_table

from tests.repository import ROOT
from tests.site.tools.test_public_scripts import TOY

TABLE = read_mistakes()
STORED = json.loads((DATA / f"{RECORD}.json").read_text())
ROWS = STORED["planted"]


def test_each_row_of_the_table_is_of_a_script_and_a_mistake() -> None:
    names = [name_of(plant) for plant in TABLE.plant]
    assert len(names) == len(set(names))
    assert {p.mistake for p in TABLE.plant} == set(TABLE.mistake)
    assert {p.script for p in TABLE.plant} == set(TABLE.script)
    assert set(TABLE.script) <= {script.name for script in read_table()}


def test_the_record_is_of_the_table() -> None:
    """And says how each has ended as its lines do."""
    assert [row["name"] for row in ROWS] == list(map(name_of, TABLE.plant))
    assert STORED["commits"].keys() == TABLE.script.keys()
    for row, plant in zip(ROWS, TABLE.plant):
        mistake = TABLE.mistake[plant.mistake]
        assert row["mistake"] == mistake["is"]
        assert judged(row, plant, mistake["cause"]) == row


def test_it_is_said_why_what_was_not_found_was_not() -> None:
    for row in ROWS:
        is_well = row["end"].startswith(("found", "no alarm"))
        assert is_well or row["why"], row["name"]


def test_the_comparable_scripts_raise_no_alarm() -> None:
    right = [p for p in TABLE.plant if p.mistake == "none"]
    versions = {name_of(p) for p in right if p.version != "as it is"}
    alarms_of = {
        row["name"]: row["torchrun"] + row["check"]
        for row in ROWS
        if row["name"] in versions
    }
    # This script's loss is 0 whatever its parameters are, which is said.
    (of_tutorial,) = alarms_of.pop("examples-ddp-series.comparable")
    assert of_tutorial.startswith("gradients of step 1 are all 0")
    assert not any(alarms_of.values())


def test_the_readme_counts_them() -> None:
    right = TABLE.mistake["none"]["is"]
    ends = [row["end"] for row in ROWS if row["mistake"] != right]
    count = Counter(end.partition(" ")[0] for end in ends)
    text = " ".join((ROOT / "README.md").read_text().split())
    assert (
        f"Four public scripts were given {len(ends)} mistakes: "
        f"{count['found']} were found by name, {count['shown']} were shown "
        f"without their cause, and {count['missed']} were missed."
    ) in text


@pytest.mark.parametrize(
    ("find", "times"), [("three", 0), ("one", 2)], ids=str
)
def test_an_edit_has_one_place(tmp_path: Path, find: str, times: int) -> None:
    (tmp_path / "a.py").write_text("one two one")
    with pytest.raises(ValueError, match=f"a.py has {times} times"):
        edit(tmp_path, [Edit("a.py", find, "four")])
    edit(tmp_path, [Edit("a.py", "two", "four")])
    assert (tmp_path / "a.py").read_text() == "one four one"


def test_alarms_are_told_from_what_a_script_prints() -> None:
    text = """\
python -m dpkit torchrun: the GPUs are simulated (h100, nvlink4)
rank 0 starts
Found
  ! the same order again (a.py:3; rank 0)

Otherwise than on a GPU
  something (a.py:4)
python -m dpkit torchrun: no rank can go on
rank 1 was at line 3 of a.py
forward 1: ranks have batches of different sizes
gradients of step 1: 2 ranks differ from one in 1 of 1
it looks like: another global batch
2 ranks compute the gradients of one, and agree with each other
"""
    assert alarms(text) == [
        "python -m dpkit torchrun: no rank can go on",
        "rank 1 was at line 3 of a.py",
        "forward 1: ranks have batches of different sizes",
        "gradients of step 1: 2 ranks differ from one in 1 of 1",
        "it looks like: another global batch",
        "the same order again (a.py:3; rank 0)",
    ]


@pytest.mark.parametrize(
    ("mistake", "lines", "end"),
    [
        ("seed", ["no seed"], "found by check"),
        ("seed", ["another batch"], "shown without its cause"),
        ("seed", [], "missed"),
        ("none", ["no seed"], "an alarm"),
        ("none", [], "no alarm"),
    ],
)
def test_an_end_is_judged(mistake: str, lines: list[str], end: str) -> None:
    row = {"torchrun": [], "check": lines}
    plant = Plant("toy", mistake, why="so")
    assert judged(row, plant, "seed") == row | {"end": end, "why": "so"}


def edit_of(find: str, new: str) -> dict[str, str]:
    """Return an edit as the table has it."""
    return {"file": "toy.py", "find": find, "replace": new}


@pytest.mark.slow
def test_a_mistake_is_planted_into_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "toy" / "toy.py"
    path.parent.mkdir()
    path.write_text(TOY)
    wrapped = "net = DistributedDataParallel(torch.nn.Linear(8, 4).cuda(), "
    bare = [
        Edit("toy.py", wrapped, "net = torch.nn.Linear(8, 4).cuda()"),
        Edit("toy.py", "device_ids=[rank])\n", "\n"),
    ]
    # Together the ranks have the rows of one matrix.
    own_rows = "eye(8)[rank :: dist.get_world_size()]"
    table = Mistakes(
        mistake={"none": {"is": ""}, "bare": {"is": "no DDP"}},
        script={
            "toy": {
                "comparable": [
                    edit_of("randn(2, 8)", own_rows),
                    edit_of("sum()", "mean()"),
                ]
            }
        },
        plant=[],
    )
    planter = Planter(
        tmp_path, table, [PublicScript("toy", "none/toy", "toy.py")]
    )
    right = planter.record(Plant("toy", "none"))
    assert (right["torchrun"], right["check"]) == ([], [])
    wrong = planter.record(Plant("toy", "bare", edits=bare))
    assert (wrong["name"], wrong["torchrun"]) == ("toy.bare", [])
    assert "not wrapped" in wrong["check"][-1]
    assert path.read_text() == TOY
