"""The live map of the decision."""

import pytest

from dpbook.explore.decision import DECISION, DEPTH
from dpbook.explore.way_map import (
    FULL,
    ROWS,
    WIDTHS,
    draw_map,
    needed_bytes,
    regions,
    stretches,
    winner,
)
from dpbook.formulas.splits import estimate
from dpkit.sim.hardware.clusters import cluster

DTYPES = "float32", "float16"


def test_it_says_who_wins_and_what_does_not_fit():
    slow = DECISION.ask(link="pcie3")
    assert slow.sentence.startswith("The network in stages is the fastest")
    assert dict(slow.facts)["data parallelism"].startswith(
        "276.5 ms, 78 % of it waiting for messages, bound by sending"
    )
    wide = DECISION.ask(width=16384)
    assert "does not fit" in dict(wide.facts)["data parallelism"]
    assert "split layers are" in wide.sentence.lower()
    half = DECISION.ask(width=16384, rows=65536, numbers="16 bits")
    shards = dict(half.facts)["data parallelism in shards"].split(";")[0]
    assert f"In shards data parallelism fits: {shards}." in half.sentence
    large = DECISION.ask(width=16384, rows=131072)
    assert large.sentence.startswith(
        "Memory decides, not time: of what fits, the network in stages is "
        "the fastest, with 35.13 s. Data parallelism would take 29.41 s, and "
        "does not fit."
    )
    shards = dict(large.facts)["data parallelism in shards"]
    assert shards.endswith("31.68 GB, which does not fit")
    none = DECISION.ask(width=16384, rows=131072, devices=2)
    assert none.sentence.startswith("No way fits into the memory")
    assert none.sentence.endswith("and does not fit.")  # and no more


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "The gradients take 5.647 ms to send, and backward hides 4.565"),
        ({"link": "pcie3"}, "a device waits 9.348 ms for messages, and 12.62"),
        ({"rows": 256}, "Nothing hides their messages, which take "),
        ({"width": 256, "rows": 256}, "split, it would be bound by launching"),
    ],
)
def test_it_says_why(settings, why):
    shown = DECISION.ask(**settings)
    assert why in shown.sentence
    if "width" not in settings:
        return
    words = shown.sentence.split("bound by ")[1].rstrip(".")
    assert f"bound by {words}" in dict(shown.facts)["data parallelism"]


def seconds(words):
    """Return the seconds at the start of a fact, such as "9.415 ms at"."""
    value, unit = words.split()[:2]
    return float(value) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit.strip(",;")]


def test_shards_are_never_faster_than_copies():
    """They send more, so that no verdict contradicts the facts."""
    presets = [*DECISION.presets.values(), {}]
    for preset in presets:
        for numbers in DECISION.controls["numbers"].options:
            shown = DECISION.ask(**{**preset, "numbers": numbers})
            facts = dict(shown.facts)
            copies = seconds(facts["data parallelism"])
            assert seconds(facts["data parallelism in shards"]) >= copies


def test_16_bits_send_half_and_keep_16_bytes_for_a_parameter():
    four = cluster(4, "v100", "nvlink2")
    sizes = {"rows": 65536, "width": 4096, "depth": DEPTH, "cluster": four}
    full, half = (estimate("data", **sizes, dtype=d) for d in DTYPES)
    assert half.activation_bytes == full.activation_bytes / 2
    assert half.sending == pytest.approx(full.sending / 2, rel=0.02)
    assert half.computing < full.computing / 3
    needed = [
        needed_bytes(found, dtype) - found.activation_bytes
        for found, dtype in zip((full, half), DTYPES)
    ]
    assert needed[0] == needed[1] == 16 * DEPTH * (4096 + 1) * 4096


def test_the_map_is_hatched_where_the_fastest_does_not_fit():
    machine = cluster(4, "v100", "nvlink2")
    for region in regions(4, "v100", "nvlink2", DEPTH)[::5]:
        found = estimate(
            region.way,
            rows=round(region.low),
            width=round(region.width),
            depth=DEPTH,
            cluster=machine,
        )
        room = machine.accelerator.memory_bytes
        assert region.fits == (needed_bytes(found, "float32") < room)
    assert FULL in draw_map(machine, DEPTH).svg
    roomy = draw_map(cluster(4, "h100", "nvlink4"), DEPTH)
    assert FULL not in roomy.svg
    assert "hatched" not in roomy.title


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
        row = [r for r in found if r.width == round(width)]
        assert row[0].low == ROWS[0]
        assert row[-1].high == ROWS[-1]
        for region in row:
            sizes = round(region.low), round(width), DEPTH, machine
            assert winner(*sizes) == region.way


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
