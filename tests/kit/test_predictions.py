"""Predicted training steps: the same program, timed by another clock."""

import gc
from dataclasses import replace

import pytest
import torch
from torch import nn

import dpkit
from dpkit.calibration import predictions as module
from dpkit.calibration.predictions import (
    CASES,
    Case,
    Prediction,
    lenet,
    mlp,
    predictions,
    predictions_table,
    step_seconds,
)
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.hardware import ACCELERATORS, HOSTS, LINKS

CPU = torch.device("cpu")
PRESETS = ACCELERATORS["laptop-cpu"], HOSTS["eager"], LINKS["pcie3"]
# It multiplies 10^9 times a second, and does all else at once.
SLOW = replace(
    ACCELERATORS["laptop-cpu"],
    flops_per_second={"float32": 1e9},
    achieved_flops={"float32": 1.0},
    bytes_per_second=1e30,
    half_flops=0.0,
    half_bytes=0.0,
    kernel_seconds=0.0,
)
FREE = replace(
    HOSTS["eager"],
    launch_seconds=0.0,
    backward_launch_seconds=0.0,
    view_seconds=0.0,
    wait_seconds=0.0,
)


def test_the_networks_are_those_that_are_named():
    assert [case.name for case in CASES] == [
        "LeNet",
        "MLP",
        "ResNet-18",
        "transformer block",
        "MobileNet",
    ]
    assert all(len(set(case.batch_sizes)) == 3 for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_network_gives_ten_scores(case):
    assert case.make()(torch.rand(2, *case.shape)).shape == (2, 10)


def test_each_network_is_simulated():
    with dpkit.sim.machine(backing="meta", num_devices=1):
        (zero,) = dpkit.devices(1, kind="sim")
        for case in CASES:
            assert all(s > 0 for s in step_seconds(case, 2, zero, 1))
            gc.collect()


def test_a_network_has_convolutions_in_groups():
    """Their rate is fitted to others, so a step of them tests it."""
    modules = [m for case in CASES for m in case.make().modules()]
    groups = {m.groups for m in modules if isinstance(m, nn.Conv2d)}
    assert {1, 32, 960} <= groups


def test_the_arithmetic_of_a_step_is_predicted():
    """Forward, and backward to the weights and to all inputs but the first."""
    (row,) = predictions(
        SLOW, FREE, LINKS["pcie3"], CPU, [Case("MLP", mlp, (784,), [16])], 1
    )
    first, others = 784 * 512, 512 * 512 + 512 * 10
    flops = 2 * 16 * (2 * first + 3 * others)
    assert row.predicted_seconds == pytest.approx(flops / 1e9, rel=1e-6)


def test_each_launch_of_backward_is_predicted():
    """Of nll_loss, log_softmax and the product; nothing to add to."""
    case = Case("dense", lambda: nn.Linear(7, 10, bias=False), (7,), [5])
    seconds = [
        predictions(
            replace(SLOW, flops_per_second={"float32": 1e30}),
            replace(FREE, backward_launch_seconds=launch),
            LINKS["pcie3"],
            CPU,
            [case],
            1,
        )[0].predicted_seconds
        for launch in (0.0, 1.0)
    ]
    assert seconds[1] - seconds[0] == pytest.approx(3)


def test_measured_and_predicted_run_the_same_program(monkeypatch):
    """On a simulated device both clocks are one: it is not off at all."""
    monkeypatch.setattr(module, "WARM_UP", 1)
    cases = [Case("LeNet", lenet, (1, 28, 28), (2, 3))]
    dpkit.sim.register()
    presets = dict(zip(("accelerator", "host", "link"), PRESETS))
    with dpkit.sim.machine(num_devices=1, backing="meta", **presets):
        rows = predictions(*PRESETS, torch.device("sim:0"), cases, num_steps=2)
    assert [row.batch_size for row in rows] == [2, 3]
    for row in rows:
        assert row.factor == pytest.approx(1, abs=1e-9)
        assert row.least_seconds == pytest.approx(row.measured_seconds)


def test_steps_on_this_machine_are_measured():
    before = dict(simulation.settings)
    (row,) = predictions(
        *PRESETS, CPU, [Case("MLP", mlp, (784,), [4])], num_steps=3
    )
    assert (row.model, row.batch_size) == ("MLP", 4)
    assert 1e-5 < row.least_seconds <= row.measured_seconds < 10
    assert simulation.settings == before
    gc.collect()
    assert not any(simulation.memory.live)


def test_warming_up_is_not_measured(monkeypatch):
    taken = iter(range(100))
    monkeypatch.setattr(module.Timer, "_now", lambda self: next(taken) ** 2)
    seconds = step_seconds(Case("MLP", mlp, (784,), [4]), 4, CPU, 3)
    assert seconds == [4 * k + 1 for k in (2, 3, 4)]  # (2k+1)² − (2k)²


def test_a_factor_is_of_the_measured_seconds():
    assert Prediction(
        "x", 1, measured_seconds=2.0, least_seconds=1.0, predicted_seconds=3.0
    ).factor == pytest.approx(1.5)
    assert Prediction(
        "x", 1, measured_seconds=2.0, least_seconds=1.0, predicted_seconds=1.0
    ).factor == pytest.approx(0.5)


def test_the_table_lines_up():
    rows = [
        Prediction(
            "transformer block",
            256,
            measured_seconds=12.3456,
            least_seconds=9.87654,
            predicted_seconds=30.5,
        ),
        Prediction(
            "MLP",
            1,
            measured_seconds=1e-5,
            least_seconds=1e-5,
            predicted_seconds=1e-5,
        ),
    ]
    lines = str(predictions_table(rows)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split() == (
        "transformer block 256 12345.60 9876.54 30500.00 ×2.47".split()
    )
