"""Tests of dpkit.sim.devices.names: what torch.accelerator does."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils import benchmark

import dpkit
from dpkit import sim
from dpkit.sim.devices import names as device_names

sim.register()
ZERO, ONE, TWO = (torch.device("sim", index) for index in range(3))


@pytest.fixture(autouse=True)
def _at_zero():
    yield
    torch.sim.set_device(0)


def test_the_current_device():
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1
    assert torch.sim.current_device() == 1
    assert torch.ones(2, device="sim").device == ONE
    assert torch.ones(2).to("sim").device == ONE
    torch.sim.set_device(2)
    assert torch.accelerator.current_device_index() == 2


def test_the_current_device_of_a_block():
    with torch.accelerator.device_index(2):
        assert torch.ones(2, device="sim").device == TWO
        with torch.accelerator.device_index(None):
            assert torch.accelerator.current_device_index() == 2
    assert torch.accelerator.current_device_index() == 0


def test_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.accelerator.set_device_index(8)


def test_waiting():
    x = torch.ones(4000, 4000, device=ONE)
    dpkit.synchronize([ZERO, ONE])
    start = sim.now()
    y = x @ x
    torch.accelerator.synchronize()  # for the current one, which is idle
    too_early = sim.now() - start
    torch.accelerator.synchronize("sim:1")
    assert sim.now() - start > 20 * too_early
    del y


def test_streams():
    side = torch.sim.Stream(ONE)
    before = torch.accelerator.current_stream(1)
    try:
        torch.accelerator.set_stream(side)
        assert torch.accelerator.current_stream(ONE) == side
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == side
    finally:
        torch.accelerator.set_stream(before)


def test_memory():
    accelerator = torch.accelerator
    accelerator.reset_peak_memory_stats(1)
    occupied = accelerator.memory_allocated(1)
    x = torch.ones(1000, device=ONE)
    assert accelerator.memory_allocated(1) == occupied + 4000
    del x
    accelerator.empty_cache()
    assert accelerator.memory_allocated(1) == occupied
    assert accelerator.memory_reserved(1) == occupied
    assert accelerator.max_memory_allocated("sim:1") == occupied + 4000
    assert accelerator.max_memory_reserved(ONE) == occupied + 4000
    accelerator.reset_accumulated_memory_stats(1)
    accelerator.reset_peak_memory_stats(ONE)
    stats = accelerator.memory_stats(1)
    assert stats["allocated_bytes.all.peak"] == occupied
    assert stats["allocated_bytes.all.current"] == occupied
    assert accelerator.get_memory_info(1) == torch.sim.mem_get_info(1)


def test_time_of_code_for_the_cpu():
    timer = benchmark.Timer("x + x", globals={"x": torch.ones(2)})
    assert timer.timeit(3).mean > 0


def test_where_there_is_a_gpu_it_is_the_gpu(monkeypatch):
    """So that what measures CUDA waits for it, as before."""
    calls = []

    def noting(name):
        return lambda *args: calls.append((name, *args))

    names = set(device_names.ACCELERATOR_CALLS.values())
    stub = SimpleNamespace(**{name: noting(name) for name in names})
    stub.is_initialized = lambda: True
    stub.memory_stats_as_nested_dict = lambda index: {"bytes": {"now": index}}
    stub.device_count = lambda: 2
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(device_names, "real_devices", lambda: [gpu])
    monkeypatch.setattr(torch, "cuda", stub)
    accelerator = torch.accelerator
    assert accelerator.current_accelerator() == torch.device("cuda")
    assert torch._C._get_accelerator() == torch.device("cuda")
    assert accelerator.device_count() == 2
    accelerator.synchronize(1)
    accelerator.set_device_index(1)
    accelerator.empty_cache()
    accelerator.current_stream(1)
    assert accelerator.memory_stats(1) == {"bytes.now": 1}
    assert calls == [
        ("synchronize", 1),
        ("set_device", 1),
        ("empty_cache",),
        ("current_stream", 1),
    ]


def test_cuda_has_what_torch_accelerator_calls():
    missing = [
        name
        for name in device_names.ACCELERATOR_CALLS.values()
        if not hasattr(torch.cuda, name) or not hasattr(torch.sim, name)
    ]
    assert missing == []


def test_all_that_torch_accelerator_calls_is_replaced():
    folder = Path(torch.accelerator.__file__).parent
    source = "".join(p.read_text() for p in folder.glob("*.py"))
    called = set(re.findall(r"torch\._C\.(_accelerator_\w+)", source))
    replaced = {name for name, _ in device_names.accelerator_calls()}
    # No device of the simulation has one.
    assert called - replaced <= {"_accelerator_getDeviceCapability"}


@pytest.mark.skipif(
    torch.__version__ < "2.15" and not hasattr(torch.accelerator, "random"),
    reason="this torch is older than 2.15",
)
def test_the_default_generator():
    torch.manual_seed(5)
    assert torch.accelerator.random.initial_seed() == 5
