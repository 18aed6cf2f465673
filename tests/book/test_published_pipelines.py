"""Tests of published pipelines and of what is recorded for them."""

import json
from dataclasses import replace
from random import Random

import pytest
import torch
import torchvision
from recorders.amoebanet import amoebanet_d
from recorders.published import columns
from recorders.resnet_pipeline import (
    forward,
    halves,
    resnet50_seconds,
)
from torch import nn

import dpkit
from dpbook.network_partitioning.torchgpipe import (
    Assumptions,
    Run,
    amoebanet_table,
    layer_costs,
    replayed_seconds,
    reversed_gpipe,
    show_ladder,
    show_table,
    step_seconds,
)
from dpkit import sim
from dpkit.network_partition import LayerCost, layer_seconds
from dpkit.schedules import bubble, replay
from dpkit.schedules.check import check
from dpkit.schedules.named import gpipe, one_f_one_b
from dpkit.sim.hardware import Link
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
GRID = [(n, m) for n in (1, 2, 3, 5) for m in (1, 2, 4, 7)]
PLAIN = Assumptions(link=None, recompute=False)


def load(name):
    return json.loads((DATA / f"{name}.json").read_text())


AMOEBANET = load("torchgpipe_amoebanet"), load("amoebanet_p40")
RESNET = load("pytorch_model_parallel"), load("resnet50_pipeline")


def equal_run(n, m, layers_each=2):
    run = Run(n, m, 3 * m, [layers_each] * n, samples_per_second=1.0)
    return run, [LayerCost(0.5, 1.25, 1000)] * (n * layers_each)


# -- the replay


@pytest.mark.parametrize(("n", "m"), GRID)
def test_the_schedule_is_right(n, m):
    schedule = reversed_gpipe(n, m)
    assert len(check(schedule, n, m)) == 2 * n * m
    for row in schedule:
        backward = [a.micro_batch for a in row if a.kind == "B"]
        assert backward == list(reversed(range(m)))


@pytest.mark.parametrize(("n", "m"), GRID)
def test_equal_stages_take_what_the_formula_says(n, m):
    run, costs = equal_run(n, m)
    wanted = bubble.makespan("gpipe", n, m, forward=1.0, backward=2.5)
    assert step_seconds(run, costs, PLAIN) == pytest.approx(wanted)


@pytest.mark.parametrize(("n", "m"), GRID)
def test_equal_stages_recompute_in_closed_form(n, m):
    """The first stages recompute the last micro-batch for nothing."""
    run, costs = equal_run(n, m)
    F, B = 1.0, 2.5
    if m == 1:
        wanted = n * F + (F + B) + (n - 1) * B
    else:
        wanted = (m + n - 1) * F + B + (m - 1) * (F + B) + (n - 1) * B
    found = step_seconds(run, costs, Assumptions(link=None))
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("make", [gpipe, one_f_one_b, reversed_gpipe])
@pytest.mark.parametrize(("n", "m"), GRID)
def test_without_work_ahead_it_is_the_replay_of_dpkit(make, n, m):
    random = Random(f"{n} {m}")
    schedule = make(n, m)
    durations = {a: random.randint(1, 9) for row in schedule for a in row}
    hop = random.randint(0, 5)
    found = replayed_seconds(
        schedule,
        seconds=durations.__getitem__,
        hop_seconds=lambda _: hop,
        ahead_seconds=lambda _: 0.0,
    )
    ends = replay.times(schedule, durations.__getitem__, hop)
    assert found == max(end for _, end in ends.values())


def test_each_hop_counts_both_ways():
    """With one micro-batch, all hops lie on the path; the last is none."""
    link = Link(
        "x",
        bytes_per_second=1e3,
        achieved=1,
        latency_seconds=2,
        peer_to_peer=True,
    )
    run = Run(3, 1, 4, [1, 2, 1], samples_per_second=1.0)
    costs = [LayerCost(1, 2, size) for size in (5000, 10**9, 7000, 10**9)]
    apart = step_seconds(run, costs, Assumptions(link, False))
    together = step_seconds(run, costs, PLAIN)
    assert apart - together == pytest.approx(2 * ((2 + 5) + (2 + 7)))


def test_stages_take_what_their_layers_take():
    """Two stages, one micro-batch: every layer once each way."""
    run = Run(2, 1, 4, [1, 2], samples_per_second=1.0)
    costs = [LayerCost(1, 10, 0), LayerCost(100, 1000, 0), LayerCost(3, 7, 0)]
    assert step_seconds(run, costs, PLAIN) == 104 + 1017
    assert step_seconds(run, costs, Assumptions(link=None)) == 104 + 103 + 1017
    equal = replace(PLAIN, equal_stages=True)
    three = replace(run, num_micro_batches=3)
    assert step_seconds(three, costs, equal) == pytest.approx(
        4 * (104 + 1017) / 2
    )


def test_only_the_last_micro_batch_is_kept():
    """Worked by hand; to keep the first would take 47."""
    # 1B1 19-21, 1B0 31; 0B1 21-30, its R 33, 0B0 42
    run = Run(2, 2, 2, [1, 1], samples_per_second=1.0)
    costs = [LayerCost(3, 9, 0), LayerCost(8, 2, 0)]
    assert step_seconds(run, costs, Assumptions(link=None)) == 42


# -- the costs of layers


def test_costs_come_back_from_a_record():
    costs = [LayerCost(0.25, 0.5, 7), LayerCost(0.125, 1.5, 11)]
    assert layer_costs(json.loads(json.dumps(columns(costs)))) == costs


@pytest.mark.slow
def test_the_record_of_amoebanet_is_what_is_simulated():
    """If not: python scripts/record.py published."""
    size, count = "36", 4
    with sim.machine(
        num_devices=1, accelerator="p40", link="pcie3", backing="meta"
    ):
        (device,) = dpkit.devices(1, kind="sim")
        with device:
            layers = amoebanet_d()[:count]
        X = torch.empty(int(size), 3, 224, 224, device=device)
        found = layer_seconds(layers, X, device)
        del layers, X
    recorded = layer_costs(AMOEBANET[1]["micro_batches"][size])
    assert len(recorded) == 24
    for one, other in zip(found, recorded):
        assert one == pytest.approx(other, rel=1e-3)


def test_every_published_micro_batch_is_recorded():
    sizes = {
        r["batch"] // r["num_micro_batches"] for r in AMOEBANET[0]["runs"]
    }
    assert {int(size) for size in AMOEBANET[1]["micro_batches"]} == sizes


# -- the table


def test_the_table_holds_what_was_published():
    rows = amoebanet_table(*AMOEBANET)
    published, _ = AMOEBANET
    assert [row.run for row in rows] == [Run(**r) for r in published["runs"]]
    assert [(r.run.num_stages, r.run.num_micro_batches) for r in rows] == [
        (n, m) for n in (2, 4, 8) for m in (1, 4, 32)
    ]
    for row, printed in zip(rows, published["printed_speedups"], strict=True):
        # The speed-ups as printed are not quite the ratios of the speeds.
        assert row.measured == pytest.approx(printed, rel=0.01)
        n, m = row.run.num_stages, row.run.num_micro_batches
        assert row.formula == pytest.approx(m * n / (m + n - 1))
        assert row.run.batch % m == 0
    first = rows[0]
    assert (first.formula, first.replayed, first.measured) == (1, 1, 1)


@pytest.mark.parametrize("order", [1, -1])
def test_formula_and_replay_agree_where_they_must(order):
    """Each layer alike, and as long for an image of any micro-batch."""
    published = {"runs": AMOEBANET[0]["runs"][::order]}
    sizes = {r["batch"] // r["num_micro_batches"] for r in published["runs"]}
    alike = {
        str(b): columns([LayerCost(b * 1e-3, b * 2e-3, 100)] * 24)
        for b in sizes
    }
    equal = replace(PLAIN, equal_stages=True)
    for row in amoebanet_table(published, {"micro_batches": alike}, equal):
        assert row.replayed == pytest.approx(row.formula)


def test_the_replay_is_near_but_in_one_run():
    rows = amoebanet_table(*AMOEBANET)
    far = {
        (r.run.num_stages, r.run.num_micro_batches)
        for r in rows
        if abs(r.miss) > 0.085
    }
    assert far == {(4, 4)}


def test_the_speed_itself_is_missed_in_all_runs_alike():
    """1.0 to 1.2 times too fast, but in the run that is far off."""
    rows = amoebanet_table(*AMOEBANET)
    ratios = [r.samples_per_second / r.run.samples_per_second for r in rows]
    far = ratios.pop(4)
    assert 1 < min(ratios) <= max(ratios) < 1.2 < far < 1.5


def mean_miss(assumptions):
    rows = amoebanet_table(*AMOEBANET, assumptions)[1:]
    return sum(abs(row.miss) for row in rows) / len(rows)


def test_each_published_circumstance_brings_the_replay_nearer():
    """One assumption changed at a time; each change makes it worse."""
    best = mean_miss(Assumptions())
    for worse, times in (
        (Assumptions(recompute=False), 1.1),
        (Assumptions(link=None), 1.5),
        (Assumptions(equal_stages=True), 1.6),
    ):
        assert mean_miss(worse) > times * best


def test_tables_show_all_runs():
    assert len(show_table(amoebanet_table(*AMOEBANET)).rows) == 9
    lines = str(show_ladder(*AMOEBANET)).splitlines()
    assert [line[:8] for line in lines[1:]] == [
        "formula ",
        "layers' ",
        "publishe",
        "recomput",
        "hops    ",
    ]


# -- ResNet-50


def test_halves_are_the_whole():
    net = torchvision.models.resnet18(num_classes=5).eval()
    first, second = halves(net)
    X = torch.randn(3, 3, 64, 64)
    torch.testing.assert_close(second(first(X)), net(X))
    assert first(X).shape == (3, 128, 8, 8)  # after the second of four groups


@pytest.mark.parametrize("split_size", [None, 1, 2, 3, 7, 9])
def test_pieces_are_the_whole(split_size):
    here, there = dpkit.devices(2, kind="sim")
    first = nn.Sequential(nn.Linear(5, 4), nn.Tanh()).double().to(here)
    second = nn.Linear(4, 3).double().to(there)
    X = torch.randn(7, 5, dtype=torch.float64).to(here)
    found = forward(first, second, X, there, split_size)
    found.square().sum().backward()
    assert found.device == there
    whole = second(first(X).to(there))
    torch.testing.assert_close(found, whole)
    gradients = [
        p.grad.clone() for p in (*first.parameters(), *second.parameters())
    ]
    first.zero_grad()
    second.zero_grad()
    whole.square().sum().backward()
    for kept, p in zip(gradients, (*first.parameters(), *second.parameters())):
        torch.testing.assert_close(kept, p.grad)


def test_pieces_run_at_once_on_two_devices():
    with sim.machine(num_devices=2, accelerator="k80", backing="meta"):
        here, there = dpkit.devices(2, kind="sim")
        first = nn.Linear(4000, 4000).to(here)
        second = nn.Linear(4000, 4000).to(there)
        X = torch.empty(8000, 4000, device=here)
        seconds = {}
        for size in (None, 1000):
            with dpkit.Timer([here, there]) as timer, torch.no_grad():
                forward(first, second, X, there, size)
            seconds[size] = timer.seconds
        del first, second, X
    assert seconds[1000] == pytest.approx(9 / 16 * seconds[None], rel=0.05)


@pytest.mark.slow
def test_the_record_of_resnet50_is_what_is_simulated():
    """If not: python scripts/record.py published."""
    found = resnet50_seconds(60, 2, "k80")
    recorded = RESNET[1]["seconds"]["k80"]["60"]
    assert found == pytest.approx(recorded, rel=5e-3)


def test_the_published_clock_does_not_wait():
    """It leaves the last backward pass out: of one step, most of it."""
    early, late = (
        resnet50_seconds(None, 1, num_batches=1, waits=waits)
        for waits in (False, True)
    )
    assert 0.2 * late < early < 0.6 * late


def test_more_devices_than_halves_are_refused():
    with pytest.raises(ValueError, match=r"num_devices: 3"):
        resnet50_seconds(20, 3)


def test_every_preset_says_that_only_pieces_help():
    for seconds in RESNET[1]["seconds"].values():
        one = seconds["one device"]
        assert seconds["no"] > one
        assert seconds["20"] < one > seconds["12"]


def test_k80s_come_near_what_was_measured():
    """Over the time of one device: 0.06 too little, in pieces 0.04."""
    measured, found = RESNET[0]["seconds"], RESNET[1]["seconds"]["k80"]
    for split, most in (("no", 0.07), ("20", 0.04), ("12", 0.04)):
        ratios = [t[split] / t["one device"] for t in (measured, found)]
        assert abs(ratios[0] - ratios[1]) < most
