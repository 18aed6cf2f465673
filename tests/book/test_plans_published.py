"""Steps of Llama 3: the three layouts, and two readings of their rates."""

import json
from dataclasses import replace

import pytest

from dpbook.explore.planner import nodes_of
from dpbook.plan_a_run.published import llama3_steps, readings_table
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.networks import NETWORKS
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


def test_todays_kernel_makes_the_short_steps_three_percent_shorter():
    for step in STEPS[:2]:
        today = replace(step.case, attention="").seconds(step.layout).total
        ratio = step.case.seconds(step.layout).total / today
        assert ratio == pytest.approx(1.03, abs=0.002)


@pytest.mark.parametrize(
    ("stages", "chunks", "alone", "replicas"),
    [(16, 8, "117", 8), (32, 4, "90", 4)],
)
def test_so_many_replicas_fit_and_half_as_many_do_not(
    stages, chunks, alone, replicas
):
    """On 1,024 devices, each replica with the micro-batches of the plan."""
    held = {}
    for data in (1, replicas // 2, replicas):
        machine = nodes_of("h100", data * 8 * stages)
        micro_batches = 2048 // (16_384 // 8 // stages)
        case = Case(NETWORKS["405B"], data * micro_batches, machine)
        layout = Layout(data, 8, stages, chunks=chunks, zero=2)
        held[data] = case.memory(layout).total / 2**30
    assert data * 8 * stages == 1024
    assert f"{held[1]:.0f}" == alone
    assert held[replicas // 2] > 80 > held[replicas]


def test_blocks_at_work_take_one_and_a_half_gib():
    """Beside a sixty-fourth of gradients and weights, by ZeRO-2 and 3."""
    machine = nodes_of("h100", 64)
    case = Case(NETWORKS["7B"], 1024, machine, kernels="fused")
    alone, _, gradients, weights = (
        case.memory(Layout(64, zero=stage)) for stage in range(4)
    )
    for part, whole, share in (
        (gradients.gradients, alone.gradients, "0.4"),
        (weights.weights, alone.weights, "0.2"),
    ):
        assert f"{whole / 64 / 2**30:.1f}" == share
        assert f"{(part - whole / 64) / 2**30:.1f}" == "1.5"


def test_the_table_has_both_readings():
    rows = readings_table(RECORD["llama3"]).rows
    assert [row["tokens"] for row in rows] == ["8,192", "8,192", "131,072"]
    assert rows[2]["all pairs, s"] == "15.3"
    assert rows[2]["half of them, s"] == "10.9"
