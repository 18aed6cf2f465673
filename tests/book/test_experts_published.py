"""Published steps of layers with experts, as the planner has them."""

import json
from dataclasses import replace

import pytest
from recorders.trust import expert_plans

from dpbook.limits.comparisons import mean_factor, read
from dpbook.limits.trust import WITH_EXPERTS
from dpbook.plan_a_run.published_experts import (
    WAYS,
    steps_with_experts,
    ways_table,
)
from dpbook.plan_a_run.tables import GROUPS, misses_table
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
RECORD = json.loads((DATA / "plans.json").read_text())["experts"]
STEPS = list(steps_with_experts(RECORD))
FOUND = read(DATA / "comparisons.json").of(WITH_EXPERTS)


def test_layouts_have_the_devices_and_shares_of_their_rows():
    assert len(STEPS) == len(RECORD["rows"]) == 46
    for row, (name, way, step) in zip(RECORD["rows"], STEPS, strict=True):
        assert step.layout.num_devices == row[4]
        assert (name, way) == (row[0], WAYS[row[1]])
        peak = step.case.cluster.accelerator.flops_per_second["bfloat16"]
        assert peak == pytest.approx(1e12 * RECORD["peak_teraflops"], rel=1e-3)
        done = step.network.flops(step.case.batch) / step.seconds()
        share = done / row[4] / peak
        assert share == pytest.approx(row[-1] / 100, rel=1e-3)


def test_steps_have_the_tokens_that_the_paper_gives():
    """256 or 1,024 sequences; as many tokens while sequences get longer."""
    tokens = {
        (step.case.batch * step.network.sequence, step.network.sequence > 4096)
        for *_, step in STEPS
    }
    assert tokens == {(2**20, False), (2**22, False), (2**24, True)}


def test_the_seconds_are_those_of_the_published_rates():
    """The paper gives 458.3 and 487.7 TFLOP/s for two of its steps."""
    by_way = {way: step for name, way, step in STEPS[:5] if name == "8x22B"}
    for way, rate in (("stages, u = t", 458.3), ("stages, u = 1", 487.7)):
        assert by_way[way].teraflops == pytest.approx(rate, rel=0.001)


def test_the_order_of_all_ways_is_right():
    assert len(FOUND.decisions) == 31
    assert all(decision.right for decision in FOUND.decisions)
    for first in (0, 5):
        steps = [step for *_, step in STEPS[first : first + 5]]
        measured = [step.seconds() for step in steps]
        planned = [step.case.seconds(step.layout).total for step in steps]
        places = sorted(range(5), key=lambda i: measured[i])
        assert places == sorted(range(5), key=lambda i: planned[i])


def test_a_wrong_order_would_be_seen():
    """As it were if messages in layers took no time."""
    rows = []
    for row, (*_, step) in zip(expert_plans.rows(RECORD), STEPS, strict=True):
        seconds = step.case.seconds(step.layout)
        shorter = seconds.total - seconds.messages
        rows.append(replace(row, predicted=shorter))
    wrong = [d for d in expert_plans.decisions(rows) if not d.right]
    assert len(wrong) > 5


def test_what_the_page_says_of_the_five_ways():
    gathered, parts, one, shared, whole = (step for *_, step in STEPS[:5])
    seconds = gathered.case.seconds(gathered.layout)
    assert round(seconds.gradients / seconds.total, 2) == 0.85
    layer = gathered.network.experts * gathered.network.mlp_parameters
    assert round(layer / 1e9, 1) == 2.4
    seconds = one.case.seconds(one.layout)
    assert seconds.messages > 0.2 * seconds.total
    luck = parts.case.seconds(parts.layout).total / seconds.total
    assert 1 < luck < 1.02
    assert 2 < parts.seconds() / whole.seconds() < 2.2
    assert gathered.case.micro_batches(gathered.layout) == 16
    assert gathered.seconds() > 10 * whole.seconds()
    assert round(shared.seconds() / whole.seconds(), 2) == 1.06
    *_, shared, whole = (step for *_, step in STEPS[5:10])
    assert round(shared.seconds() / whole.seconds(), 1) == 1.7
    of_16, of_8, of_whole = (
        shared.case.seconds(layout).total
        for layout in (
            shared.layout,
            shared.layout._replace(expert=4),
            shared.layout._replace(expert_tensor=1),
        )
    )
    assert of_16 - of_8 > 3 * (of_8 - of_whole) > 0
    held = shared.case.memory(shared.layout).total
    assert round(held / 2**30) == 77
    assert held > shared.case.room
    fitting = [
        step.case.memory(step.layout).total <= step.case.room
        for *_, step in STEPS[:10]
    ]
    assert fitting.count(False) == 1


def test_what_the_page_says_of_misses():
    far = [row for row in FOUND.rows if row.times_off > 1.15]
    assert len(far) == 29
    others = [r for r in FOUND.rows if GROUPS["8x22B, other ways"](r)]
    assert max(row.factor for row in others) == pytest.approx(1.23, abs=0.01)
    assert min(row.factor for row in others) > 0.99
    divided = [r for r in FOUND.rows if "parts gathered" in r.configuration]
    assert all(1 / 1.9 < row.factor < 1 for row in divided)
    in_a_node = [
        row
        for row in FOUND.rows
        if "G8T8" in row.subject and "u = 1" in row.configuration
    ]
    assert mean_factor(in_a_node) < 1.06


def test_tables_have_a_line_for_each_step_and_group():
    assert len(ways_table(STEPS[:5]).rows) == 5
    names = [name for name in GROUPS if "8x22B" in name or "narrow" in name]
    lines = misses_table(FOUND.rows, *names).rows
    assert sum(line["rows"] for line in lines) == 46
