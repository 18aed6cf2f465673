"""Training steps of whole models: the same function on any device."""

from dataclasses import replace

import pytest
from torch import nn

import dpkit
from dpbook.common.records import load_record
from dpbook.limits import gpu_tables
from dpbook.limits.gpu_steps import CASES, Case, machine_of, train
from dpbook.mesh.model import Llama, Sizes

IMAGES = Case(
    "convolution",
    lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)),
    shape=(3, 8, 8), classes=5, batch_size=6, bfloat16=False,
)  # fmt: skip
TOKENS = Case(
    "tokens",
    lambda: Llama(Sizes()),
    shape=(32,),
    classes=64,
    batch_size=2,
    bfloat16=True,
)


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
    """The peak is not that of the case before."""
    (device,) = dpkit.devices(1, kind="sim")
    large = train(replace(IMAGES, batch_size=1000), device, 1)
    small = train(IMAGES, device, 1)
    assert large.peak_bytes > 2 * small.peak_bytes


@pytest.mark.parametrize("preset", gpu_tables.PRESETS)
@pytest.mark.parametrize("index", [0, 4], ids=["images", "tokens"])
def test_forecasts_are_those_of_the_record(preset, index):
    case = CASES[index]
    with machine_of(preset):
        (device,) = dpkit.devices(1, kind="sim")
        step = train(case, device, num_steps=1)
    row = recorded(preset)[index]
    assert (row["model"], row["batch"]) == (case.name, case.batch_size)
    assert step.seconds == pytest.approx(row["seconds"], rel=0.02)
    assert step.peak_bytes == pytest.approx(row["peak_bytes"], rel=0.02)


def test_records_are_of_the_same_steps():
    keys = "model", "batch", "bfloat16"
    expected = [(c.name, c.batch_size, c.bfloat16) for c in CASES]
    measured = load_record("gpu_steps")["steps"]
    for rows in (measured, *map(recorded, gpu_tables.PRESETS)):
        assert [tuple(row[key] for key in keys) for row in rows] == expected


def test_the_gpu_of_all_records_is_the_same():
    for name in ("gpu_steps", "gpu_operators", "resident_epoch"):
        assert load_record(name)["provenance"]["gpus"] == ["NVIDIA H200"]
    calibrated = load_record("calibrated_h200")
    assert calibrated["accelerator"]["name"] == "NVIDIA H200"


# What the page says of the records.


def test_steps_of_calibration_are_all_predicted_too_short():
    record = load_record("calibrated_h200")
    rows = record["provenance"]["check"]
    factors = [r["measured_seconds"] / r["predicted_seconds"] for r in rows]
    assert 2.45 < min(factors) < 2.55
    assert 4.25 < max(factors) < 4.35
    host = record["host"]
    assert f"{1e6 * host['launch_seconds']:.1f}" == "6.9"
    assert f"{1e6 * host['backward_launch_seconds']:.1f}" == "12.4"
    smallest = [
        min(map(tuple, samples))[1]
        for kind, samples in record["provenance"]["times"].items()
        if "convolution" in kind
    ]
    assert len(smallest) == 8
    assert 150e-6 < min(smallest) < max(smallest) < 250e-6


def seconds_on_the_gpu(step):
    rows = load_record("gpu_operators")["operators"]
    return sum(row["seconds"] for row in rows if row["step"] == step)


def test_the_gpu_works_for_less_than_a_quarter_of_a_small_step():
    record = load_record("calibrated_h200")
    found = {}
    for row in record["provenance"]["check"]:
        name = f"{row['model']} {row['batch_size']}"
        if (seconds := seconds_on_the_gpu(name)) > 0:
            found[name] = seconds
            assert seconds < row["measured_seconds"] / 4
    assert len(found) == 5
    assert f"{1e3 * min(found.values()):.1f}" == "0.1"
    assert f"{1e3 * max(found.values()):.1f}" == "2.3"


def test_the_host_waits_for_less_than_a_tenth_of_a_millisecond():
    rows = load_record("gpu_operators")["parts"]
    waits = {row["step"]: row["wait_seconds"] for row in rows}
    for name in ("LeNet 64", "transformer block 8", "MobileNet 16"):
        assert waits[name] < 1e-4
    (resnet,) = (row for row in rows if row["step"] == "ResNet-18 16")
    whole = sum(x for key, x in resnet.items() if key.endswith("_seconds"))
    assert f"{1e3 * whole:.1f}" == "11.5"


def test_models_of_tokens_are_predicted_and_convolutions_are_not():
    measured = load_record("gpu_steps")["steps"]
    factors = {"Llama": [], "ResNet": []}
    for preset in gpu_tables.PRESETS:
        for row, simulated in zip(measured, recorded(preset), strict=True):
            kind = "Llama" if "Llama" in row["model"] else "ResNet"
            factors[kind].append(row["seconds"] / simulated["seconds"])
            memory = simulated["peak_bytes"] / row["peak_bytes"]
            assert abs(memory - 1) < 0.13
    assert min(factors["Llama"]) > 0.99
    assert max(factors["Llama"]) < 1.2
    assert f"{min(factors['ResNet']):.1f}" == "1.3"
    assert f"{max(factors['ResNet']):.1f}" == "2.4"


def test_what_two_steps_take_on_the_gpu():
    small = "Llama, 0.16 billion 8 bfloat16"
    large = "Llama, 0.9 billion 1 bfloat16"
    assert f"{1e3 * seconds_on_the_gpu(small):.0f}" == "30"
    assert f"{1e3 * seconds_on_the_gpu(large):.0f}" == "48"


def test_batch_norm_and_convolutions_of_a_step():
    rows = str(gpu_tables.operators_table()).splitlines()[1:]
    assert len(rows) == len(gpu_tables.OPERATORS)
    norm, norm_back, conv, conv_back, *_ = (
        [float(word) for word in row.split()[-3:]] for row in rows
    )
    sums = [
        [f"{a + b:.0f}" for a, b in zip(*pair, strict=True)]
        for pair in ((norm, norm_back), (conv, conv_back))
    ]
    assert sums == [["61", "24", "12"], ["31", "16", "29"]]


def test_convolutions_and_kernels_that_are_timed():
    record = load_record("gpu_operators")
    assert len(record["convolutions"]) == 29 * 4 * 2
    assert len({row["kernel"] for row in record["attention"]}) == 3
