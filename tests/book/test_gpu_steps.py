"""Training steps of whole models: the same function on any device."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import dpkit
from dpbook.limits import gpu_tables
from dpbook.limits.gpu_steps import CASES, DATA, Case, machine_of, train
from dpbook.mesh.model import Llama, Sizes

IMAGES = Case(
    "convolution",
    lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)),
    (3, 8, 8), 5, 6, False,
)  # fmt: skip
TOKENS = Case("tokens", lambda: Llama(Sizes()), (32,), 64, 2, True)


def recorded(preset):
    return gpu_tables.forecasts(preset)


@pytest.mark.parametrize("case", [IMAGES, TOKENS], ids=["images", "tokens"])
def test_a_step_takes_time_and_memory(case):
    (device,) = dpkit.devices(1, kind="sim")
    step = train(case, device, num_steps=3)
    assert 0 < step.least_seconds <= step.seconds < 1
    parameters = sum(p.numel() for p in case.make().parameters() if p.dim())
    # The parameter, its gradient, and two moments of Adam.
    assert step.peak_bytes > 4 * 4 * parameters


def test_more_rows_take_more_memory_and_are_not_those_of_the_case_before():
    """The peak begins anew with each case."""
    (device,) = dpkit.devices(1, kind="sim")
    large = train(replace(IMAGES, batch_size=1000), device, 1)
    small = train(IMAGES, device, 1)
    assert large.peak_bytes > 2 * small.peak_bytes


@pytest.mark.parametrize("preset", gpu_tables.PRESETS)
def test_forecasts_are_those_of_the_record(preset):
    case = CASES[0]
    with machine_of(preset):
        (device,) = dpkit.devices(1, kind="sim")
        step = train(case, device, num_steps=1)
    row = recorded(preset)[0]
    assert (row["model"], row["batch"]) == (case.name, case.batch_size)
    assert step.seconds == pytest.approx(row["seconds"], rel=0.02)
    assert step.peak_bytes == pytest.approx(row["peak_bytes"], rel=0.02)


def test_records_are_of_the_same_steps():
    keys = "model", "batch", "bfloat16"
    expected = [(c.name, c.batch_size, c.bfloat16) for c in CASES]
    measured = gpu_tables.load("gpu_steps")["steps"]
    for rows in (measured, *map(recorded, gpu_tables.PRESETS)):
        assert [tuple(row[key] for key in keys) for row in rows] == expected


def test_the_gpu_of_all_records_is_the_same():
    for name in ("gpu_steps", "gpu_operators", "resident_epoch"):
        assert gpu_tables.load(name)["provenance"]["gpus"] == ["NVIDIA H200"]
    calibrated = json.loads((DATA / "calibrated_h200.json").read_text())
    assert calibrated["accelerator"]["name"] == "NVIDIA H200"


def test_what_the_page_says_of_the_table():
    measured = gpu_tables.load("gpu_steps")["steps"]
    for preset in gpu_tables.PRESETS:
        for row, simulated in zip(measured, recorded(preset), strict=True):
            factor = row["seconds"] / simulated["seconds"]
            least, most = (
                (0.99, 1.2) if "Llama" in row["model"] else (1.5, 3.1)
            )
            assert least < factor < most
            memory = simulated["peak_bytes"] / row["peak_bytes"]
            assert 0.96 < memory < 1.13


def test_an_operator_of_the_step_is_measured_and_simulated():
    rows = str(gpu_tables.operators_table()).splitlines()[1:]
    assert len(rows) == len(gpu_tables.OPERATORS)
    assert torch.tensor([float(r.split()[-1]) for r in rows]).min() > 0
