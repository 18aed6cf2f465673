"""Tests of dpkit.runs.cuda_names.time_of_programs: the time it sees."""

import subprocess
import sys
import threading
import time
import timeit

import pytest
import torch

from dpkit import sim
from dpkit.runs.cuda_names import time_of_programs
from dpkit.runs.cuda_names.time_of_programs import SIMULATED_TIME

sim.register()
CLOCKS = ("time", "perf_counter", "monotonic")


@pytest.fixture
def machine():
    """One process on two devices that take milliseconds."""
    with sim.machine(
        num_devices=2, accelerator="v100", host="eager", backing="meta"
    ):
        yield


def squared():
    """Issue work of some milliseconds to the first device."""
    x = torch.ones(4000, 4000, device="cuda")
    return x @ x


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_show_what_the_simulated_clock_counts(name, machine):
    real = getattr(time, name)()
    before = sim.now()
    with sim.as_cuda():
        begun = getattr(time, name)(), getattr(time, f"{name}_ns")()
        squared()
        torch.cuda.synchronize()
        passed = sim.now() - before
        seconds = getattr(time, name)() - begun[0]
        nanoseconds = getattr(time, f"{name}_ns")() - begun[1]
    assert passed > 1e-3
    assert seconds == pytest.approx(passed, abs=1e-6)
    assert nanoseconds == pytest.approx(1e9 * passed, abs=1e3)
    # It begins with the time on the wall, and what the clock has counted.
    assert real <= begun[0] - before <= getattr(time, name)()


def test_the_host_does_not_wait_for_the_device(machine):
    with sim.as_cuda():
        begun = time.perf_counter()
        squared()
        issued = time.perf_counter() - begun
        torch.cuda.synchronize()
        done = time.perf_counter() - begun
    assert issued == pytest.approx(16e-6, abs=2e-6)  # two launches
    assert done > 100 * issued


def test_events_streams_and_clocks_agree(machine):
    with sim.as_cuda():
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begun = time.time()
        with torch.cuda.stream(torch.cuda.Stream()):
            first.record()
            squared()
            last.record()
        last.synchronize()
        seconds = time.time() - begun
        milliseconds = first.elapsed_time(last)
    assert 1e3 * seconds == pytest.approx(milliseconds, rel=0.02)


def test_sleep_takes_simulated_seconds(machine, monkeypatch):
    """And a moment on the wall, for who asks in a loop."""
    moments = []
    monkeypatch.setattr(time_of_programs, "_really_sleep", moments.append)
    with sim.as_cuda():
        start = time.time()
        time.sleep(1000)
        slept = time.time() - start
    assert slept == pytest.approx(1000, abs=1e-3)
    assert moments == [time_of_programs.MOST_SLEEP]


def test_default_timer_of_timeit(machine):
    with sim.as_cuda():
        begun = timeit.default_timer()
        time.sleep(7)
        assert timeit.default_timer() - begun == pytest.approx(7, abs=1e-3)


def test_libraries_see_the_time_on_the_wall(machine):
    """They wait for processes and threads by it, and write logs."""
    waited = threading.Event()
    with sim.as_cuda():
        shown = time.time()
        assert not waited.wait(0.2)
        assert time.time() - shown < 0.1
        library = vars(threading)["_time"]  # time.monotonic, bound before
        assert library.__module__ == "time"


def test_real_time_is_left(machine, capsys):
    with sim.as_cuda(real_time=True):
        begun = time.perf_counter()
        time.sleep(0.01)
        assert time.perf_counter() - begun >= 0.01
        assert sim.now() < 0.01
    assert SIMULATED_TIME not in capsys.readouterr().err


def test_all_is_as_before():
    before = {n: getattr(time, n) for n in (*CLOCKS, "sleep", "time_ns")}
    with sim.as_cuda():
        assert time.time is not before["time"]
    assert {name: getattr(time, name) for name in before} == before


def test_the_first_use_says_so(machine, capsys):
    with sim.as_cuda():
        assert SIMULATED_TIME not in capsys.readouterr().err
        time.time()
        time.perf_counter()
    assert capsys.readouterr().err.count(SIMULATED_TIME) == 1


def test_time_goes_on_with_another_machine(machine):
    with sim.as_cuda():
        start = time.time()
        time.sleep(3)
        with sim.machine(num_devices=3):
            time.sleep(2)
            inside = time.time() - start
        after = time.time() - start
    assert inside == pytest.approx(5, abs=1e-3)
    assert after == pytest.approx(5, abs=1e-3)


def test_each_rank_has_its_host(machine):
    def slept():
        begun = time.time()
        time.sleep(torch.distributed.get_rank())
        return time.time() - begun

    with sim.machine(num_devices=3, hosts="per_device"), sim.as_cuda():
        found = sim.launch(slept, 3)
    assert found == pytest.approx([0, 1, 2], abs=1e-3)


def test_workers_that_load_data_see_the_time_on_the_wall(machine):
    loader = """
import time, torch, dpkit

class Times(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        begun = time.time()
        time.sleep(0.05)
        return time.time() - begun

with dpkit.sim.as_cuda():
    batches = torch.utils.data.DataLoader(Times(), num_workers=1)
    print(all(float(x) >= 0.05 for x in batches))
"""
    done = subprocess.run(
        [sys.executable, "-c", loader], capture_output=True, text=True
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("value", "count"),
    [("0", 1), ("1,0", 2), ("1, 0", 2), ("1,7,0", 1), ("-1", 0), ("", 0)],
)
def test_devices_that_a_program_makes_visible(value, count, monkeypatch):
    with sim.machine(num_devices=3), sim.as_cuda():
        assert torch.cuda.device_count() == 3
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert torch.cuda.device_count() == count
        with pytest.raises(RuntimeError, match=f"sees: {count}"):
            torch.ones(1, device=f"cuda:{count}")


def test_what_the_shell_makes_visible_is_meant_for_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with sim.machine(num_devices=3), sim.as_cuda():
        assert torch.cuda.device_count() == 3


def test_a_rank_sees_the_devices_of_its_node_whatever_it_sets(monkeypatch):
    """Ranks set the variable to a device of their own, and use cuda:0."""

    def count():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        return torch.cuda.device_count()

    with sim.machine(num_devices=2), sim.as_cuda():
        assert sim.launch(count, 2) == [2, 2]
