"""The planner as a live figure: what it shows, refuses, and where."""

import json
import re
from dataclasses import replace

import pytest

from dpbook.explore.all import answer
from dpbook.explore.planner import (
    CONTROLS,
    FACTORS,
    PLANNER,
    PROGRAM_HOSTS,
    nodes_of,
)
from dpbook.explore.stacked import stacked_bars
from dpbook.limits.comparisons import (
    mean_factor,
    read,
    unseen,
    worst,
)
from dpbook.limits.trust import PLANS
from dpbook.plan_a_run.tables import (
    GROUPS,
    memory_table,
    misses_table,
    seconds_table,
)
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS
from dpbook.planner.search import plan
from dpkit.units import show_factor
from tests.repository import ROOT


def test_it_shows_yours_beside_the_best():
    shown = PLANNER.ask()
    assert [p.title for p in shown.pictures] == [
        "memory of the fullest device",
        "seconds of a step",
    ]
    for picture in shown.pictures:
        assert ">yours<" in picture.svg
        assert ">best<" in picture.svg
    assert shown.sentence.startswith("Yours fits and takes ")
    assert "longer than" in shown.sentence


def test_parts_of_a_bar_are_told_with_their_sizes():
    rows = {"one": {"a": 1.0, "b": 3.0}, "two": {"a": 0.0, "b": 2.0}}
    svg = stacked_bars(rows, "sizes", "{:.0f} kg".format, ("most", 5.0)).svg
    for words in ("a: 1 kg", "b: 3 kg", "b: 2 kg", "4 kg", "most: 5 kg"):
        assert f">{words}<" in svg
    assert ">a: 0 kg<" not in svg


def test_a_name_ends_before_its_bar_where_letters_are_large():
    """On a phone they have 20 units; so wide is the name in Arial."""
    name, width = "chosen: ZeRO-0", 160.5
    svg = stacked_bars({name: {"a": 1.0}}, "sizes", str).svg
    start = re.search(rf'<text x="(.*?)".*>{name}<', svg)[1]
    bar = re.search(r'<rect x="([\d.]+)"[^>]*><title>', svg)[1]
    assert float(start) + width < float(bar)


REFUSED = [
    ({"tensor": 8, "pipeline": 16}, "pipeline", "too few devices"),
    ({"model": "ResNet-50", "pipeline": 1}, "tensor", "divide the heads"),
    ({"tensor": 5}, "tensor", "(tensor: 5, a divisor of: 8)"),
    ({"tensor": 3}, "tensor", "divide the heads and the node"),
    ({"pipeline": 3, "examples": 630}, "pipeline", "devices are left over"),
    ({"pipeline": 32, "chunks": 2, "tensor": 1}, "chunks", "too few layers"),
    ({"micro_batch": 256}, "micro_batch", "do not fill the batch"),
    ({"pipeline": 1, "chunks": 2}, "chunks", "go round in a pipeline"),
    ({"zero": "3"}, "zero", "without a pipeline"),
    ({"context": 16}, "pipeline", "too few devices"),
    (
        {"model": "ResNet-50", "tensor": 1, "context": 2},
        "context",
        "no sequences to share",
    ),
    ({"devices": 12.5}, "devices", "a whole number"),
]


@pytest.mark.parametrize(("settings", "place", "words"), REFUSED)
def test_what_is_no_layout_is_refused_in_its_place(settings, place, words):
    shown = PLANNER.ask(**settings)
    assert words in shown.refused
    assert shown.place == place


def test_what_does_not_fit_is_shown_and_told():
    shown = PLANNER.ask(model="405B")
    assert shown.refused == ""
    assert "No layout fits on these devices." in shown.sentence
    assert all(">best<" not in p.svg for p in shown.pictures)
    trained = PLANNER.ask(**PLANNER.presets["405 billion on 16,384 H100s"])
    assert trained.sentence.startswith(
        "Yours, 128 × 8 × 16, v = 8 does not fit: it holds 72."
    )


def test_a_compiled_program_does_not_wait_for_launches():
    """Where eight devices share a layer of few tokens, an eager one does."""
    small = {"tensor": 8, "pipeline": 1, "sequence": 1024}
    found = {}
    for program in PROGRAM_HOSTS:
        facts = dict(PLANNER.ask(program=program, **small).facts)
        rate, _ = facts["yours: arithmetic of a device"].split(" TFLOP/s")
        found[program] = int(rate)
    eager, compiled = found.values()
    assert compiled > 1.5 * eager


def test_a_v100_computes_in_float16():
    facts = dict(PLANNER.ask(accelerator="v100", devices=512).facts)
    share = int(facts["yours: arithmetic of a device"].split()[-5])
    assert 20 < share < 70


@pytest.mark.parametrize("name", PLANNER.presets)
def test_presets_set_everything_and_are_not_refused(name):
    settings = PLANNER.presets[name]
    assert set(settings) == set(CONTROLS)
    assert PLANNER.ask(**settings).refused == ""


def test_a_page_gets_its_answer():
    asked = {"figure": "planner", "settings": {"tensor": 4}}
    found = json.loads(answer(json.dumps(asked)))
    assert len(found["pictures"]) == 2
    assert "8 × 4 × 2" not in found["sentence"]


@pytest.mark.parametrize(
    "settings",
    [
        {"tensor": 1, "pipeline": 1, "zero": "0"},
        {"model": "70B"},
        {"pipeline": 1, "micro_batch": 16},
    ],
)
def test_the_control_that_it_names_makes_a_layout_fit(settings):
    shown = PLANNER.ask(**settings)
    assert shown.sentence.startswith("Yours, ")
    assert " does not fit: " in shown.sentence
    named = re.search(r"It would fit with (.*?)\. ", shown.sentence)[1]
    names = {c.label.split(":")[0]: n for n, c in CONTROLS.items()}
    for move in named.split(", or with "):
        label, value = move.split(": ")
        name = names[label]
        value = value if name in ("zero", "recompute") else int(value)
        moved = PLANNER.ask(**{**settings, name: value})
        assert moved.sentence.startswith("Yours fits"), move


def test_where_no_control_helps_alone_it_says_so():
    shown = PLANNER.ask(model="405B", devices=1024)
    assert "No control, moved alone, makes it fit." in shown.sentence


def test_the_best_is_told_what_it_loses_to():
    settings = PLANNER.presets["ResNet-50 on 8 V100s"]
    assert PLANNER.ask(**settings).sentence.endswith(
        "Besides products its largest part is other kernels, 46 % of it."
    )


def test_every_control_changes_the_picture_or_is_refused():
    base = PLANNER.ask().as_json()
    for name, control in CONTROLS.items():
        for value in control.moves:
            if value != PLANNER.start[name]:
                assert PLANNER.ask(**{name: value}).as_json() != base


# -- how far off it was

DATA = ROOT / "book" / "_data"
ROWS = read(DATA / "comparisons.json").of(*PLANS).rows


@pytest.mark.parametrize(("name", "sharded"), FACTORS)
def test_the_factors_that_it_tells_are_those_of_the_record(name, sharded):
    found = [
        row
        for row in unseen(ROWS)
        if row.hardware.endswith(name.upper())
        and "gradients" not in row.subject
        and ("ZeRO-3" in row.configuration) == sharded
    ]
    factors = mean_factor(found), worst(found).times_off
    assert (
        tuple(round(factor, 2) for factor in factors) == FACTORS[name, sharded]
    )


def test_each_row_is_in_one_group_of_the_page():
    for row in ROWS:
        assert sum(belongs(row) for belongs in GROUPS.values()) == 1
    table = misses_table(ROWS)
    assert sum(line["rows"] for line in table.rows) == len(unseen(ROWS))


def test_rates_become_seconds_before_they_are_judged():
    """A rate that is 1.25 times too high is a time that is too short."""
    (row,) = [
        row
        for row in unseen(ROWS)
        if row.subject == "1B" and "A100" in row.hardware
    ]
    assert row.factor > 1.2
    (line,) = misses_table([row], "ZeRO-3 on A100s").rows
    assert line == {
        "seconds of": "ZeRO-3 on A100s, left out",
        "rows": 1,
        "mean factor": f"{row.factor:.2f}",
        "largest": show_factor(1 / row.factor),
        "beyond 1.15": 1,
    }


def test_factors_are_the_same_for_too_long_and_too_short():
    (row,) = [row for row in ROWS if "gradients" in row.subject]
    long, short = (
        replace(row, predicted=row.measured * factor) for factor in (2.0, 0.5)
    )
    (line,) = misses_table([long, short], "530B: added by 8 replicas").rows
    assert list(line.values())[2:] == ["2.00", "×2.00", 2]


def test_fitted_rows_stand_apart():
    names = [
        line["seconds of"]
        for line in misses_table(
            ROWS, "ZeRO-3 on H100s", kinds=("fitted", "unseen")
        ).rows
    ]
    assert names == ["ZeRO-3 on H100s, fitted", "ZeRO-3 on H100s"]


def test_tables_of_layouts_say_what_was_planned():
    case = Case(NETWORKS["7B"], 1024, nodes_of("h100", 64))
    layouts = [Layout(64, zero=0), Layout(64, zero=3)]
    no, yes = memory_table(case, layouts).rows
    assert (no["fits"], yes["fits"]) == ("no", "yes")
    parts = ("weights", "gradients", "state", "activations")
    held = sum(float(yes[part]) for part in parts)
    assert held == pytest.approx(float(yes["GiB"]), abs=0.2)  # rounded
    (row,) = seconds_table([plan(case, layouts[1])]).rows
    assert list(row.values())[:5] == (
        ["64\xa0×\xa01\xa0×\xa01", 1, 1, "none", 3]
    )
    shares = [int(share.rstrip("%")) for share in list(row.values())[7:]]
    assert sum(shares) == pytest.approx(100, abs=3)  # each is rounded
