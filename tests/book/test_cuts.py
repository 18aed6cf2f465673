"""Steps that were split in several ways: their rows and decisions."""

import json

import pytest
from recorders.trust import cuts, plans

from dpbook.limits.comparisons import read
from dpbook.limits.trust import PLANS
from dpbook.plan_a_run.tables import cuts_table
from dpbook.plan_a_run.zero_messages_table import zero_messages_table
from dpbook.planner.case import Case
from dpbook.planner.networks import NETWORKS
from dpbook.planner.zero_messages import (
    BY_BLOCK,
    BY_TENSOR,
    PIECE_SECONDS,
)
from dpkit.plans.library_costs import even_seconds
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


def test_zero_3_of_2021_is_within_a_third_and_grids_within_a_twentieth(rows):
    for row in rows:
        alone = "ZeRO-3" in row.configuration
        assert row.times_off < (4 / 3 if alone else 1.04)


def test_all_steps_of_530b_by_zero_3_are_too_short(rows):
    """By a fifth to a quarter, as the page says of what stays."""
    found = [
        row.factor
        for row in rows
        if "530B" in row.subject and "ZeRO-3" in row.configuration
    ]
    assert len(found) == 3
    assert all(0.75 < factor < 0.82 for factor in found)


def test_steps_measured_both_ways_are_in_the_table():
    found = read(DATA / "comparisons.json").of(*PLANS).rows
    table = cuts_table(found)
    assert [row["GPUs"] for row in table.rows] == (
        "384 768 1,536 1,120 2,240".split()
    )
    for row in table.rows:
        alone, grid = float(row["ZeRO-3, s"]), float(row["grid, s"])
        assert float(row["measured"]) == pytest.approx(alone / grid, abs=0.05)
        assert float(row["measured"]) > 1
        right = float(row["planned"]) > 1
        assert right == (row["GPUs"] != "384")


def planned(messages=BY_TENSOR, overlap=False):
    """Return network and GPUs -> seconds by ZeRO-3 alone."""
    found = {}
    for name, batch, count, d, t, p, b, zero, _ in RECORD["steps"]["rows"]:
        if zero == 3:
            machine = plans.gpus(count, "a100")
            case = Case(NETWORKS[name], batch, machine, zero_messages=messages)
            layout = cuts._layout((d, t, p), b, zero)
            layout = layout._replace(overlap=overlap)
            found[name.split()[0], count] = case.seconds(layout).total
    return found


def test_with_nothing_hidden_messages_of_blocks_are_still_too_fast():
    """Nearer, and on 1,536 GPUs behind the grid; but not by 3.2."""
    alone = planned(BY_BLOCK)
    assert 1 < alone["175B", 1536] / 20.8 < 1.3
    assert all(planned(BY_BLOCK, overlap=True)[k] < alone[k] for k in alone)


def test_the_order_of_cuts_does_not_rest_on_pieces(rows):
    """Messages of tensors alone make it right, on all but 384 GPUs."""
    grids = {}
    for row in rows:
        if "ZeRO-3" not in row.configuration:
            count = int(row.hardware.split()[0].replace(",", ""))
            grids[row.subject.split(", ")[1], count] = row.predicted
    of_tensors = planned(BY_TENSOR._replace(in_pieces=False))
    for alone in (of_tensors, planned()):
        pairs = [(alone[key], grids[key]) for key in grids if key in alone]
        assert len(pairs) == 5
        assert sum(seconds > grid for seconds, grid in pairs) == 4


def test_the_worked_example_of_messages_is_computed():
    """175 billion weights over 1,536 A100s, as ``zero_messages`` has it."""
    machine = plans.gpus(1536, "a100")
    steps = 2.5 * (192 * 5e-6 + 1343 * 2.1e-6)
    assert steps == pytest.approx(9.5e-3, rel=0.01)
    num_bytes = 2 * 175e9
    passing = num_bytes * 1535 / 1536 / (8 * 24e9)
    assert passing == pytest.approx(1.82, abs=0.005)
    for count, of_steps, together in (
        (1, 0.01, 1.83),
        (96, 0.91, 2.73),
        (384, 3.63, 5.45),
    ):
        ring = even_seconds(
            "allgather", p=1536, stride=1, n=num_bytes / count, cluster=machine
        )
        assert count * steps == pytest.approx(of_steps, abs=0.006)
        assert count * ring == pytest.approx(together, abs=0.006)
    assert pytest.approx(8e-6) == PIECE_SECONDS


def test_the_page_shows_the_experiment_step_by_step():
    found = read(DATA / "comparisons.json").of(*PLANS).rows
    table = zero_messages_table(RECORD["steps"]["rows"], found)
    assert len(table.rows) == 6
    for row in table.rows:
        times = [float(value) for value in list(row.values())[2:6]]
        assert times == sorted(times)
        assert float(row["of pieces too"]) == pytest.approx(
            planned()[row["network"], int(row["GPUs"].replace(",", ""))],
            rel=0.01,
        )


def test_orders_ask_which_of_five_is_the_fastest():
    found = list(cuts.orders(RECORD, plans.gpus))
    assert [d.measured for d in found] == ["1 × 8 × 8"] * 2 + [
        "32 × 1 × 2"
    ] * 2
    assert all(d.right for d in found)


def test_what_the_three_causes_explain_of_what_was_missing():
    """As the page says; and the summary, that a step is four times as long."""
    found = read(DATA / "comparisons.json").of(*PLANS).rows
    explained = {}
    for row in zero_messages_table(RECORD["steps"]["rows"], found).rows:
        hidden, pieces, measured = (
            float(row[head])
            for head in ("hidden", "of pieces too", "measured")
        )
        share = (pieces - hidden) / (measured - hidden)
        explained[row["network"], row["GPUs"]] = f"{share:.0%}"
        if row["GPUs"] == "1,536":
            assert share > 1
            assert pieces > 4 * hidden
    assert explained["175B", "768"] == "81%"
    assert explained["175B", "384"] == "74%"
    of_530b = [
        share for (name, _), share in explained.items() if name == "530B"
    ]
    assert (min(of_530b), max(of_530b), len(of_530b)) == ("46%", "69%", 3)
