"""The live map of the decision."""

import pytest

from dpbook.explore.decision import DECISION, DEPTH
from dpbook.explore.way_map import (
    ROWS,
    WIDTHS,
    draw_map,
    regions,
    stretches,
    winner,
)
from dpkit.theory.hardware.clusters import cluster


def test_it_says_who_wins_and_what_does_not_fit():
    slow = DECISION.ask(link="pcie3")
    assert slow.sentence.startswith("The network in stages is the fastest")
    assert dict(slow.facts)["data parallelism"].startswith(
        "276.5 ms, 78 % of it waiting for messages, bound by sending"
    )
    wide = DECISION.ask(width=16384)
    assert "does not fit" in dict(wide.facts)["data parallelism"]
    assert "split layers are" in wide.sentence.lower()
    assert wide.sentence.endswith(
        "In shards data parallelism fits: 950.7 ms at best."
    )
    large = DECISION.ask(width=16384, rows=131072)
    assert large.sentence == (
        "Of what fits, the network in stages is the fastest: 35.13 s. "
        "Data parallelism would take 29.41 s, and does not fit."
    )
    shards = dict(large.facts)["data parallelism in shards"]
    assert shards.endswith("31.68 GB, which does not fit")
    none = DECISION.ask(width=16384, rows=131072, devices=2)
    assert none.sentence.startswith("No way fits into the memory")


@pytest.mark.parametrize(
    ("settings", "way", "bound"),
    [
        ({}, "data parallelism", "computing"),
        ({"link": "pcie3"}, "split layers", "sending"),
        ({"width": 128, "rows": 256}, "one device", "launching"),
    ],
)
def test_what_bounds_a_way(settings, way, bound):
    facts = dict(DECISION.ask(**settings).facts)
    assert f"bound by {bound}" in facts[way]


def test_a_pipeline_waits_for_its_messages_at_every_width():
    for width in DECISION.controls["width"].stops[3:]:
        settings = {"link": "pcie3", "width": width, "rows": 65536}
        facts = dict(DECISION.ask(**settings).facts)
        share = facts["the network in stages"].split(", ")[1]
        assert int(share.split(" % of it waiting")[0]) > 0


@pytest.mark.parametrize("link", ["nvlink2", "pcie3"])
def test_the_regions_are_those_of_the_winners(link):
    machine = cluster(4, "v100", link)
    found = regions(4, "v100", link, DEPTH)
    for width in WIDTHS[::3]:
        row = [r for r in found if r[1] == round(width)]
        assert row[0][2] == ROWS[0]
        assert row[-1][3] == ROWS[-1]
        for way, _, low, _ in row:
            assert winner(round(low), round(width), DEPTH, machine) == way


def test_stretches_end_where_answers_change():
    asked = []

    def ask(i):
        asked.append(i)
        return "ab"[i >= 10] if i < 30 else "c"

    assert stretches(49, ask) == [("a", 10), ("b", 30), ("c", 49)]
    assert len(asked) == len(set(asked)) < 20


def test_a_map_has_a_mark_for_each_simulated_step():
    marks = {(256, 4096): "layer", (4096, 4096): "data"}
    machine = cluster(4, "v100", "nvlink2")
    svg = draw_map(machine, DEPTH, marks=marks).svg
    assert svg.count("▲") == 1
    assert svg.count("■") == 1
    assert "<circle" not in svg
    assert "<circle" in draw_map(machine, DEPTH, here=(99, 999)).svg


def test_every_first_touch_shows_something():
    for move, shown in DECISION.frames():
        assert shown.sentence, move
        assert not shown.refused
