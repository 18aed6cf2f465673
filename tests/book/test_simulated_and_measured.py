"""Tests of dpbook.common.simulated_and_measured."""

import pytest
import torch

from dpbook.common import simulated_and_measured as module
from dpbook.common.simulated_and_measured import (
    recorded_step,
    recorded_time,
    simulate_and_measure,
)


def work(device: torch.device) -> float:
    """Return other seconds on a GPU than on a simulated one."""
    return 0.003 if device.type == "cuda" else 0.002


@pytest.fixture
def one_gpu(monkeypatch):
    """Let this machine have one GPU, whose name is given."""
    devices = module.devices

    def here(count, kind=None):
        return devices(count, kind) if kind else [torch.device("cuda", 0)]

    def named(name):
        monkeypatch.setattr(module, "devices", here)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)

    return named


def test_a_gpu_stands_beside_its_preset(one_gpu):
    one_gpu("Tesla V100-PCIE-16GB")
    found = simulate_and_measure({"work": work}, recorded={"work": 1.0})
    assert found.rows == [
        {
            "work": "work",
            "simulated (v100-pcie), ms": "2",
            "Tesla V100-PCIE-16GB (measured here), ms": "3",
            "measured / simulated": "1.50",
        }
    ]


def test_a_gpu_without_a_preset_is_measured_alone(one_gpu):
    one_gpu("NVIDIA Double")
    found = simulate_and_measure({"work": work}, "µs")
    assert found.heads == ["work", "NVIDIA Double (measured here), µs"]


def test_work_is_measured_after_a_first_call(one_gpu):
    one_gpu("NVIDIA Double")
    seconds = iter([9.0, 1.0, 3.0, 2.0])
    found = simulate_and_measure({"work": lambda device: next(seconds)}, "")
    assert found.rows[0]["NVIDIA Double (measured here)"] == "2"


def test_a_record_stands_for_a_gpu(monkeypatch):
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    found = simulate_and_measure({"a": work, "b": work}, recorded={"a": 0.001})
    head = "NVIDIA H200 (recorded, no GPU is here), ms"
    assert [row[head] for row in found.rows] == ["1", "–"]
    assert found.rows[0]["measured / simulated"] == "0.50"
    assert "measured / simulated" not in found.rows[1]
    assert simulate_and_measure({"b": work}).heads == [
        "work",
        "simulated (h200), ms",
    ]


def test_the_simulated_device_computes_no_values(monkeypatch):
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    with pytest.raises(RuntimeError, match="there are no numbers to read"):
        simulate_and_measure(
            {"a sum": lambda d: torch.ones(2, device=d).sum().item()}
        )


def test_what_was_recorded():
    # 2 · 4096³ operations in 2.714 ms are 51 Tflop/s.
    assert recorded_time("product float32") == pytest.approx(2.714e-3, 1e-3)
    assert recorded_step("LeNet 64") == pytest.approx(1.476e-3, rel=1e-3)
