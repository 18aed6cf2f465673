"""Tests of dpkit.machine."""

import subprocess
import sys

import pytest
import torch

import dpkit


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)


def names(devices: list[torch.device]) -> list[str]:
    return [str(device) for device in devices]


def test_gpus_come_first(pretend_gpus):
    pretend_gpus(2)
    assert names(dpkit.devices(2)) == ["cuda:0", "cuda:1"]
    assert names(dpkit.devices()) == ["cuda:0", "cuda:1"]


def test_sim_held_on_a_gpu_where_gpus_are_too_few(monkeypatch, pretend_gpus):
    held = []
    monkeypatch.setattr(dpkit.machine, "hold_on_gpu", lambda: held.append(1))
    assert names(dpkit.devices(2)) == ["sim:0", "sim:1"]
    assert held == []
    pretend_gpus(1)
    assert names(dpkit.devices(2)) == ["sim:0", "sim:1"]
    assert held == [1]
    dpkit.devices(2, kind="sim")
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    dpkit.devices(2)
    assert held == [1]


def test_all_of_a_kind():
    assert names(dpkit.devices(kind="sim")) == [f"sim:{i}" for i in range(8)]
    assert names(dpkit.devices(kind="cpu")) == ["cpu"]


def test_simulated_devices_ask_for_no_gpus(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "dpkit.machine.real_devices", lambda: asked.append(1) or []
    )
    dpkit.devices(2, kind="sim")
    assert asked == []
    dpkit.devices(2)
    assert asked == [1]


def test_environment_decides(monkeypatch, pretend_gpus):
    pretend_gpus(4)
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    assert names(dpkit.devices(2)) == ["sim:0", "sim:1"]
    assert names(dpkit.devices(2, kind="cpu")) == ["cpu", "cpu"]
    monkeypatch.setenv("DPKIT_DEVICES", "tpu")
    with pytest.raises(ValueError, match=r"DPKIT_DEVICES: 'tpu', known: cuda"):
        dpkit.devices(2)
    monkeypatch.setenv("DPKIT_DEVICES", "")
    assert names(dpkit.devices(2)) == ["cuda:0", "cuda:1"]


def test_a_gpu_is_a_real_or_a_simulated_one(monkeypatch, pretend_gpus):
    pretend_gpus(2)
    monkeypatch.setattr(dpkit.machine, "hold_on_gpu", lambda: None)
    assert names(dpkit.devices(2, "gpu")) == ["cuda:0", "cuda:1"]
    assert names(dpkit.devices(3, "gpu")) == ["sim:0", "sim:1", "sim:2"]
    for environment, name in ("sim", "sim:0"), ("cpu", "sim:0"):
        monkeypatch.setenv("DPKIT_DEVICES", environment)
        assert names(dpkit.devices(1, "gpu")) == [name]
    monkeypatch.setenv("DPKIT_DEVICES", "gpu")
    assert names(dpkit.devices(2)) == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("count", [0, -1])
def test_no_devices(count):
    with pytest.raises(ValueError, match=rf"\(count: {count}\)"):
        dpkit.devices(count)


def test_more_than_there_are(pretend_gpus):
    pretend_gpus(1)
    with pytest.raises(RuntimeError, match="asked for: 2, there are: 1"):
        dpkit.devices(2, kind="cuda")
    with pytest.raises(RuntimeError, match="asked for: 9, there are: 8"):
        dpkit.devices(9, kind="sim")
    with pytest.raises(RuntimeError, match=r"there are: 8\); .*=9\)"):
        dpkit.devices(9, kind="sim")
    pretend_gpus(0)
    with pytest.raises(RuntimeError, match="asked for: all, there are: 0"):
        dpkit.devices(kind="cuda")


def test_unknown_kind():
    with pytest.raises(ValueError, match=r"kind: 'tpu', known: cuda, sim"):
        dpkit.devices(1, kind="tpu")


def test_devices_by_name():
    dpkit.devices(2, "sim")
    dpkit.synchronize(["sim:0", "cpu"])


@pytest.mark.parametrize("device", ["mps", "meta"])
def test_what_cannot_be_waited_for(device, monkeypatch):
    """Nothing is waited for then, not even the devices before it."""
    monkeypatch.setattr(torch.cuda, "synchronize", None)
    told = rf"waits for no .* \(device: {device}\); dpkit.devices"
    with pytest.raises(ValueError, match=told):
        dpkit.synchronize(["cuda:0", device])


def test_synchronize_waits_for_every_device(monkeypatch):
    waited_for = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited_for.append)
    devices = [torch.device("cuda", i) for i in range(3)]
    dpkit.synchronize(devices)
    assert set(waited_for) == set(devices)


def test_timer_waits_before_and_after(monkeypatch, watch):
    events = []

    def wait(device):
        events.append(device)
        watch(0.1)

    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    device = torch.device("cuda", 1)
    with dpkit.Timer([device]) as timer:
        events.append("work")
    assert events == [device, "work", device]
    # The second wait alone is counted.
    assert timer.seconds == pytest.approx(0.1)


def test_timer_measures(kind, get_devices, watch):
    devices = get_devices(1)
    with dpkit.Timer(devices) as timer:
        watch(0.05)
    assert timer.simulated == (kind == "sim")
    if timer.simulated:  # Python's own work takes no simulated time
        assert timer.seconds < 1e-4
        assert "simulated (v100, nvlink2)" in repr(timer)
    else:
        assert timer.seconds == pytest.approx(0.05)
        assert repr(timer).endswith("ms, measured)")


def test_timer_of_simulated_devices_waits_for_all_of_them():
    devices = dpkit.devices(2, kind="sim")
    x = torch.ones(2000, 2000, device=devices[1])
    with dpkit.Timer(devices) as both:
        x @ x
    with dpkit.Timer(devices[:1]) as one:
        x @ x
    assert both.seconds > 20 * one.seconds
    with (
        dpkit.sim.machine(hosts="per_device"),
        dpkit.Timer(devices) as apart,
    ):
        x @ x
    assert apart.seconds > 20 * one.seconds


def test_timer_tells_what_was_simulated_when_it_ran():
    devices = dpkit.devices(1, "sim")
    with (
        dpkit.sim.machine(accelerator="h200"),
        dpkit.Timer(devices) as timer,
    ):
        pass
    assert timer.clock == "simulated (h200, nvlink2)"
    assert "h200" in repr(timer)
    assert "h200" not in dpkit.sim.label()


def test_two_clocks_do_not_mix():
    devices = [*dpkit.devices(1, kind="sim"), torch.device("cpu")]
    with pytest.raises(ValueError, match="devices: sim:0, cpu"):
        dpkit.Timer(devices)


def test_import_is_light():
    """No backend, no matplotlib, no IPython."""
    program = (
        "import sys, torch, dpkit\n"
        "print(torch._C._get_privateuse1_backend_name(), *sorted(\n"
        "    {'matplotlib', 'IPython', 'torchvision'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.split() == ["privateuseone"]
