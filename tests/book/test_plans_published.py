"""Steps of Llama 3: the three layouts, and two readings of their rates."""

import json

import pytest

from dpbook.plan_a_run.published import llama3_steps, readings_table
from dpbook.planner.work import Attention, work
from tests.repository import ROOT

RECORD = json.loads((ROOT / "book" / "_data" / "plans.json").read_text())
STEPS = list(llama3_steps(RECORD["llama3"]))


def test_all_three_layouts_have_their_devices_and_16_million_tokens():
    counts = [row[0] for row in RECORD["llama3"]["rows"]]
    assert [step.layout.num_devices for step in STEPS] == counts
    tokens = {step.case.batch * step.network.sequence for step in STEPS}
    assert tokens == {2**24}


def test_a_rate_is_read_in_two_ways():
    """At 131,072 tokens attention with all pairs is most of the arithmetic."""
    *short, long = STEPS
    assert round(long.seconds(), 1) == 15.3
    assert round(long.seconds(masked=True), 1) == 10.9
    for step in short:
        assert step.seconds() / step.seconds(masked=True) == pytest.approx(
            1.04, abs=0.001
        )


def test_the_published_rate_times_the_peak_is_the_published_mfu():
    """43, 41 and 38 %: the flops of the MFU are those of the rate."""
    published = 0.43, 0.41, 0.38
    for step, mfu in zip(STEPS, published, strict=True):
        peak = step.case.cluster.accelerator.flops_per_second["bfloat16"]
        assert 1e12 * step.teraflops / peak == pytest.approx(mfu, abs=0.01)


def test_the_planner_is_nearer_to_all_pairs():
    for step in STEPS:
        planned = step.case.seconds(step.layout).total
        assert 1.0 < planned / step.seconds() < 1.2
    assert 1.5 < planned / step.seconds(masked=True) < 1.7


def test_attention_is_more_than_half_of_the_long_step():
    """As the page says: without attention's kernels less than half is left."""
    long = STEPS[2]
    whole = long.case.seconds(long.layout)
    counts = long.case.parts(long.layout).block.counts
    done = work(
        counts._replace(attention=Attention()),
        long.case.cluster.accelerator,
        long.network.dtype,
        sustained=long.case.kept_rate,
    )
    m = long.case.micro_batches(long.layout)
    others = m / 16 * long.network.layers * done.products
    assert 0.5 < (whole.products - others) / whole.total < 0.6


def test_the_table_has_both_readings():
    rows = readings_table(RECORD["llama3"]).rows
    assert [row["tokens"] for row in rows] == ["8,192", "8,192", "131,072"]
    assert rows[2]["all pairs, s"] == "15.3"
    assert rows[2]["half of them, s"] == "10.9"
