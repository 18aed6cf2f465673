"""One step by the planner, and on simulated devices."""

import json

import pytest

from dpbook.plan_a_run.clocks import (
    clocks_table,
    planned_step,
    simulated_step,
)
from tests.repository import ROOT

PATH = ROOT / "book" / "_data" / "seven_billion.json"
RECORD = json.loads(PATH.read_text())


def test_the_planned_network_is_that_of_the_record():
    """The planner's 6 flops for each parameter and token, and a forward."""
    rate = 0.65 * 801.09e12
    tokens = 16 * RECORD["length"]
    least = 8 * RECORD["runs"][-1]["parameters"] * tokens / rate
    assert 1 < planned_step(RECORD, 16).products / least < 1.15


def test_most_of_the_difference_is_the_rate_of_a_long_run():
    for sequences in (1, 16):
        long = planned_step(RECORD, sequences).total
        short = planned_step(RECORD, sequences, sustained=1.0).total
        simulated = simulated_step(RECORD, sequences)
        assert short < long
        assert abs(simulated - short) < 0.6 * (long - short)
        assert simulated < long


def test_with_many_sequences_both_are_close_at_the_full_rate():
    ratios = [
        simulated_step(RECORD, n) / planned_step(RECORD, n, sustained=1).total
        for n in (1, 16)
    ]
    assert 1.1 < ratios[0] < 1.3
    assert ratios[1] == pytest.approx(1, abs=0.1)


def test_the_table_has_the_number_of_each_page():
    one, sixteen = clocks_table(RECORD).rows
    assert list(one.values()) == [1, "0.276", "0.196", "0.242"]
    assert [round(float(x), 2) for x in sixteen.values()] == (
        [16, 3.8, 2.55, 2.44]
    )
