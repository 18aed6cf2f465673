"""The choice of hardware: what it changes, and what it refuses."""

import gc

import pytest
import torch

import dpkit
from dpkit.sim.devices import configuration, hold_on_gpu
from dpkit.sim.devices.configuration import DEFAULTS, simulation
from dpkit.sim.hardware import ACCELERATORS, LINKS
from dpkit.sim.hardware.costs import copy_seconds

ZERO = dpkit.devices(1, "sim")[0]


@pytest.fixture(autouse=True)
def _default_machine():
    dpkit.sim.configure()
    yield
    gc.collect()
    dpkit.sim.configure()


def seconds(size=1000):
    """Return the simulated seconds of a product."""
    x = torch.ones(size, size, device=ZERO)
    with dpkit.Timer([ZERO]) as timer:
        x @ x
    return timer.seconds


def test_there_are_eight_devices_unless_told_otherwise():
    assert torch.sim.device_count() == 8
    dpkit.sim.configure(num_devices=3)
    assert len(dpkit.devices(kind="sim")) == 3
    with pytest.raises(RuntimeError, match=r"asked for: 4, there are: 3"):
        dpkit.devices(4, kind="sim")
    with pytest.raises(RuntimeError, match=r"device: sim:3, simulated .* 3"):
        torch.ones(2, device="sim:3")


def test_configure_puts_what_is_not_given_back():
    dpkit.sim.configure(num_devices=3, hosts="per_device")
    dpkit.sim.configure(num_devices=2)
    assert simulation.settings == {**DEFAULTS, "num_devices": 2}


def test_a_machine_in_a_block_keeps_what_is_not_given():
    dpkit.sim.configure(num_devices=3)
    with dpkit.sim.machine(hosts="per_device"):
        assert simulation.settings["num_devices"] == 3
        assert simulation.settings["hosts"] == "per_device"
    assert simulation.settings["hosts"] == "one"


def test_rates_may_change_while_tensors_live():
    x = torch.ones(1000, 1000, device=ZERO)
    slow = seconds()
    with dpkit.sim.machine(accelerator="h100"):
        fast = seconds()
    assert fast < slow
    assert seconds() == pytest.approx(slow)
    del x


def test_a_block_has_a_clock_of_its_own():
    torch.ones(3, device=ZERO)
    before = dpkit.sim.now()
    with dpkit.sim.machine(link="pcie3"):
        assert dpkit.sim.now() == 0
        torch.ones(3, device=ZERO)
    assert dpkit.sim.now() == before > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_devices": 4}, "num_devices: 8 to 4, alive: 4.00 KiB"),
        ({"backing": "meta"}, "backing: cpu to meta, alive: 4.00 KiB"),
        ({"memory_bytes": 5000}, "memory_bytes: None to 5000, alive"),
    ],
)
def test_some_changes_need_the_tensors_gone(change, words):
    x = torch.ones(1024, device=ZERO)
    with pytest.raises(RuntimeError, match=words):
        dpkit.sim.configure(**change)
    assert simulation.settings == DEFAULTS
    if "backing" not in change:
        with (
            pytest.raises(RuntimeError, match=words),
            dpkit.sim.machine(**change),
        ):
            pass
    del x
    with dpkit.sim.machine(**change):
        assert simulation.settings != DEFAULTS


def test_a_block_without_numbers_has_a_memory_of_its_own():
    x, y = torch.ones(1024, device=ZERO), torch.ones(1024, device=ZERO)
    with dpkit.sim.machine(backing="meta", num_devices=2, memory_bytes=5000):
        assert torch.sim.memory_allocated(0) == 0
        z = torch.ones(1024, device=ZERO)
        assert torch.sim.memory_allocated(0) == 4096
        with pytest.raises(RuntimeError, match="another simulated machine"):
            x + z
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1024, device=ZERO)
        del y
    assert torch.sim.memory_allocated(0) == 4096  # x, without y and z
    assert (x + 1).sum() == 2048
    with pytest.raises(RuntimeError, match="another simulated machine"):
        z + 1


def test_a_trace_is_of_one_machine():
    with (
        dpkit.sim.trace(),
        pytest.raises(RuntimeError, match="while a trace is running"),
        dpkit.sim.machine(backing="meta"),
    ):
        pass


def test_a_preset_with_less_memory_must_hold_what_lives():
    dpkit.sim.configure(accelerator="h100", backing="meta")
    x = torch.empty(5 * 2**30, device=ZERO)  # 20 GiB
    with pytest.raises(RuntimeError, match=r"alive: 20\.00 GiB"):
        dpkit.sim.configure(accelerator="v100", backing="meta")
    del x


def test_what_outlives_its_device_is_refused():
    with dpkit.sim.machine(num_devices=16):
        x = torch.ones(3, device="sim:15")
    assert torch.sim.memory_allocated(0) == 0
    with pytest.raises(RuntimeError, match="sim:15, simulated devices: 8"):
        x + 1
    with pytest.raises(RuntimeError, match="sim:15, simulated devices: 8"):
        x.cpu()


def test_what_outlives_other_rates_is_at_home():
    with dpkit.sim.machine(accelerator="h100"):
        x = torch.ones(3, device=ZERO)
    assert (x + 1).sum() == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"accelerator": "v1000"}, "'v1000', known: .*v100, v100-pcie"),
        ({"link": "nvlink9"}, "'nvlink9', known: .*nvlink2"),
        ({"host": "fast"}, "'fast', known: .*eager"),
        ({"backing": "disk"}, "'disk', known: cpu, meta, cuda:0"),
        ({"hosts": "none"}, "'none', known: one, per_device"),
        ({"num_devices": 0}, "num_devices: 0"),
        ({"num_devices": -2}, "num_devices: -2"),
        ({"memory_bytes": 0}, "memory_bytes: 0"),
        ({"memory_bytes": -1}, "memory_bytes: -1"),
        ({"slow": {0: 0}}, "slow: {0: 0}"),
        ({"slow": {9: 2}}, "rank: 9, devices: 8"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        dpkit.sim.configure(**arguments)
    assert simulation.settings == DEFAULTS


def test_an_unknown_setting_is_refused():
    with (
        pytest.raises(TypeError, match=r"\(setting: 'colour', known: num_dev"),
        dpkit.sim.machine(colour="red"),
    ):
        pass


def test_by_default_the_values_are_held_as_configure_holds_them():
    with dpkit.sim.machine(backing="meta"), dpkit.sim.machine(backing=None):
        assert simulation.settings == DEFAULTS
        assert torch.ones(2, device="sim:0").sum().item() == 2
    assert simulation.settings == DEFAULTS


def test_a_gpu_must_be_there_to_hold_the_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(RuntimeError, match="backing: 'cuda:0'"):
        dpkit.sim.configure(backing="cuda:0")


@pytest.mark.cuda
def test_one_gpu_holds_the_numbers_of_several_devices(need_gpus):
    need_gpus(1)
    dpkit.sim.configure(num_devices=2, backing="cuda:0")
    x = torch.ones(3, device="sim:1")
    assert x.backing.device == torch.device("cuda:0")
    assert str(x.device) == "sim:1"
    assert torch.equal((x + 1).cpu(), torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="found at least two devices"):
        x + torch.ones(3, device="sim:0")
    del x


def test_a_slow_device_takes_longer():
    fast = seconds(2000)
    with dpkit.sim.machine(slow={0: 2.0}):
        assert seconds(2000) == pytest.approx(2 * fast, rel=0.02)


def test_presets_and_objects_are_the_same():
    by_name = seconds()
    with dpkit.sim.machine(
        accelerator=ACCELERATORS["v100"], link=LINKS["nvlink2"]
    ):
        assert seconds() == pytest.approx(by_name)


def test_nodes_joined_by_a_network():
    """A copy to another node takes the network's time, one inside not."""
    seconds = {}
    two = dpkit.sim.machine(ranks_per_node=2, network="ethernet25")
    with two, dpkit.sim.trace() as timeline:
        x = torch.ones(1_000_000, device="sim:0")
        for other in (1, 2):
            with dpkit.Timer([x.device]) as timer:
                x.to(f"sim:{other}")
            seconds[other] = timer.seconds
        assert torch.sim.can_device_access_peer(0, 1)
        assert not torch.sim.can_device_access_peer(0, 2)
        assert timer.clock.endswith("nodes of 2 on ethernet25)")
    link = LINKS["ethernet25"]
    expected = copy_seconds(link, 4e6)
    assert seconds[2] == pytest.approx(expected, rel=0.02)
    assert seconds[1] < expected / 10
    assert any("ethernet25" in text for text in timeline.assumptions)


def test_a_block_without_numbers_reads_none_from_outside():
    x = torch.ones(1, device="sim:1")
    with (
        dpkit.sim.machine(backing="meta", num_devices=1),
        pytest.raises(RuntimeError, match="another simulated machine"),
    ):
        x.item()
    assert x.item() == 1


def test_the_current_device_is_that_of_the_machine():
    with dpkit.sim.machine(backing="meta"):
        torch.sim.set_device(3)
        assert torch.sim.current_device() == 3
    assert torch.sim.current_device() == 0


# -- numbers on the GPU, where there are too few GPUs


@pytest.fixture
def one_gpu(monkeypatch):
    """Pretend that there is a GPU, and put back what holds the numbers."""
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(configuration, "real_devices", lambda: [gpu])
    kept = dict(vars(simulation))
    yield gpu
    vars(simulation).update(kept)


def test_numbers_lie_on_the_gpu_also_on_hardware_that_was_chosen(one_gpu):
    dpkit.sim.configure(accelerator="a100", num_devices=3)
    hold_on_gpu()
    assert simulation.backing == one_gpu
    assert simulation.settings["accelerator"] == "a100"
    assert simulation.settings["num_devices"] == 3
    dpkit.sim.configure(num_devices=2)
    assert simulation.backing == one_gpu, "nobody has said otherwise"
    with dpkit.sim.machine(backing=None):
        assert simulation.backing == one_gpu, "by default, as above"
    dpkit.sim.configure(backing="cpu")
    assert simulation.backing == torch.device("cpu")


def test_numbers_lie_where_they_were_put(one_gpu):
    dpkit.sim.configure(backing="cpu")
    hold_on_gpu()
    assert simulation.backing == torch.device("cpu")


def test_numbers_that_are_there_stay_where_they_are(one_gpu):
    x = torch.ones(3, device="sim:1")
    hold_on_gpu()
    assert simulation.backing == torch.device("cpu")
    assert (x + x).tolist() == [2, 2, 2]


def test_the_gpu_holds_no_numbers_for_a_block_alone(one_gpu):
    """What the block leaves could not be used with what comes later."""
    with dpkit.sim.machine(accelerator="a100"):
        hold_on_gpu()
        assert simulation.backing == torch.device("cpu")
    with dpkit.sim.trace():
        hold_on_gpu()  # refuses nothing
    assert simulation.backing == torch.device("cpu")
    hold_on_gpu()
    assert simulation.backing == one_gpu
