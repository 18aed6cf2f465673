"""Steps that were split in several ways: their rows and decisions."""

import json

import pytest
from recorders.trust import cuts, plans

from dpbook.limits.comparisons import read
from dpbook.limits.trust import PLANS
from dpbook.plan_a_run.tables import cuts_table
from dpbook.planner.networks import NETWORKS
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
RECORD = json.loads((DATA / "plans.json").read_text())["cuts"]


@pytest.fixture(scope="module")
def rows():
    return cuts.rows(RECORD, plans.gpus)


def test_each_cut_has_the_devices_of_its_row():
    for _, _, count, d, t, p, *_ in RECORD["steps"]["rows"]:
        assert d * t * p == count
    for figure in RECORD["orders"]["figures"]:
        assert all(d * t * p == 64 for d, t, p in figure["cuts"])
        assert figure["fastest"] in figure["cuts"]


def test_the_arithmetic_is_that_of_a_forward_more():
    """Formula 3 of the paper: layers four times, the words three times."""
    network = NETWORKS["175B of 2022"]
    words = 6 * 1536 * network.sequence * network.word_parameters
    once = network.flops(1536)
    assert cuts.flops_computed_twice(network, 1536) == pytest.approx(
        (once - words) * 4 / 3 + words
    )


def test_days_of_the_table_follow_from_its_rates():
    """300 billion tokens on 384 GPUs at 153 TFLOP/s: 84 days, by 8TP/nX."""
    network = NETWORKS["175B of 2022"]
    flops = cuts.flops_computed_twice(network, 1536)
    seconds = flops / (384 * 153e12)
    steps = 300e9 / (1536 * network.sequence)
    assert steps * seconds / 86_400 == pytest.approx(84, rel=0.02)


def test_the_planner_knows_grids_and_not_zero_3_of_2021(rows):
    for row in rows:
        if "ZeRO-3" in row.configuration:
            assert 0.2 < row.factor < 0.7
        else:
            assert row.times_off < 1.04


def test_steps_measured_both_ways_are_in_the_table():
    found = read(DATA / "comparisons.json").of(*PLANS).rows
    table = cuts_table(found)
    assert [row["GPUs"] for row in table.rows] == (
        "384 768 1,536 1,120 2,240".split()
    )
    for row in table.rows:
        alone, grid = float(row["ZeRO-3, s"]), float(row["grid, s"])
        assert float(row["measured"]) == pytest.approx(alone / grid, abs=0.05)
        assert float(row["measured"]) > 1 > float(row["planned"])


def test_with_nothing_hidden_zero_3_is_still_too_fast():
    """Nearer, and on 1,536 GPUs behind the grid; but not by 3.2."""
    alone, grid = (row for row in RECORD["steps"]["rows"] if row[2] == 1536)
    seconds = []
    for name, batch, count, d, t, p, b, zero, _ in (alone, grid):
        case = plans.Case(NETWORKS[name], batch, plans.gpus(count, "a100"))
        layout = cuts._layout((d, t, p), b, zero)._replace(overlap=False)
        seconds.append(case.seconds(layout).total)
    assert 1 < seconds[0] / seconds[1] < 1.3


def test_orders_ask_which_of_five_is_the_fastest():
    found = list(cuts.orders(RECORD, plans.gpus))
    assert [d.measured for d in found] == ["1 × 8 × 8"] * 2 + [
        "32 × 1 × 2"
    ] * 2
    assert all(d.right for d in found)
