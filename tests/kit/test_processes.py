"""Tests of dpkit.processes: what arrives, what fails, what is left."""

import ctypes
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dpkit
from dpkit.processes import Workers, launch, rank_device, starting
from dpkit.processes.rank import join_group
from tests.weekly import weekly

# Functions that the ranks run.


def values(x, scale):
    """Return a tensor, a view, a gradient, and what this rank is."""
    rank = dist.get_rank()
    weight = nn.Parameter(x.clone())
    (weight * scale * (rank + 1)).sum().backward()
    total = torch.full((3,), rank + 1.0)
    dist.all_reduce(total)
    return {
        "x": x,
        "column": x[:, 1],
        "grad": weight.grad,
        "parameter": weight,
        "total": total,
        "rank": (rank, os.environ["RANK"], os.environ["LOCAL_RANK"]),
        "world": (dist.get_world_size(), os.environ["WORLD_SIZE"]),
        "backend": dist.get_backend(),
        "device": rank_device(),
        "num_threads": torch.get_num_threads(),
        "pid": os.getpid(),
    }


def note_pid(folder):
    (Path(folder) / f"pid-{dist.get_rank()}").write_text(str(os.getpid()))
    dist.barrier()


def leave(code):
    os._exit(code)


def hang():
    """Do nothing for long, nor let another thread of this process run."""
    ctypes.PyDLL(None).sleep(9999)


def raise_on(bad, folder):
    """Raise on one rank, while the others are busy and do not notice."""
    note_pid(folder)
    if dist.get_rank() == bad:
        raise KeyError(f"number {bad}")
    hang()


def end_on(bad, how):
    """End one rank without a word, while the others wait for it."""
    if dist.get_rank() == bad:
        how()
    dist.barrier()
    time.sleep(9999)


def sleep_beyond(first, folder):
    note_pid(folder)
    if dist.get_rank() >= first:
        hang()


def return_a_lock():
    return threading.Lock()


def children():
    """Return the numbers of our children, of the unburied ones too."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def nothing_left(forking, tmp_path, monkeypatch):
    """After each test: no file, no open descriptor, no process."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = set(os.listdir("/proc/self/fd"))
    own = children()  # what forks
    yield
    assert list(folder.iterdir()) == []
    assert set(os.listdir("/proc/self/fd")) == before
    assert children() == own


@pytest.fixture(params=["forked", "new Pythons"])
def started(request, monkeypatch):
    """Start ranks in both ways: on Linux, and as elsewhere."""
    if request.param == "new Pythons":
        monkeypatch.setattr(starting, "fork_server", lambda environment: None)


def pids(folder, world_size):
    return [int((folder / f"pid-{r}").read_text()) for r in range(world_size)]


def test_values_of_each_rank(started, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    x = torch.randn(5, 2, dtype=torch.double)
    results = launch(values, 2, x, 2.0, backend="gloo")
    assert len(results) == 2
    for rank, result in enumerate(results):
        assert torch.equal(result["x"], x)
        assert torch.equal(result["column"], x[:, 1])
        assert torch.equal(result["grad"], torch.full_like(x, 2.0 * rank + 2))
        assert isinstance(result["parameter"], nn.Parameter)
        assert torch.equal(result["total"], torch.full((3,), 3.0))
        assert result["rank"] == (rank, str(rank), str(rank))
        assert result["world"] == (2, "2")
        assert result["backend"] == "gloo"
        assert result["device"] == torch.device("cpu")
        assert result["num_threads"] == 1
    assert len({result["pid"] for result in results} | {os.getpid()}) == 3


def test_threads_as_told(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert launch(torch.get_num_threads, 1) == [2]


@pytest.fixture
def three_gpus(monkeypatch, pretend_gpus):
    """Pretend; return what CUDA and the group are asked for."""
    asked = []
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    pretend_gpus(3)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: asked[0].index)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)

    def init(backend, init_method, **told):
        asked.append((backend, told))

    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(dist, "get_backend", lambda: asked[1][0])
    return asked


@pytest.mark.parametrize("backend", [None, "nccl"])
def test_a_gpu_for_each_rank(monkeypatch, three_gpus, tmp_path, backend):
    monkeypatch.setenv("WORLD_SIZE", "3")
    join_group(tmp_path, 2, backend)
    gpu = torch.device("cuda:2")
    told = {"rank": 2, "world_size": 3, "device_id": gpu}
    assert three_gpus == [gpu, ("nccl", told)]  # the GPU is chosen first
    assert rank_device() == gpu


@pytest.mark.parametrize(
    ("world_size", "kind", "backend"),
    [(4, "", None), (2, "sim", None), (2, "cpu", None), (2, "cuda", "gloo")],
)
def test_gloo(monkeypatch, three_gpus, tmp_path, world_size, kind, backend):
    """Where the GPUs are too few, or something else is asked for."""
    monkeypatch.setenv("WORLD_SIZE", str(world_size))
    monkeypatch.setenv("DPKIT_DEVICES", kind)
    join_group(tmp_path, 1, backend)
    told = {"rank": 1, "world_size": world_size, "device_id": None}
    assert three_gpus == [("gloo", told)]


def on_simulated_devices():
    """Return the device of this rank, which simulates some."""
    x = torch.ones(3, device=dpkit.devices(2, kind="sim")[1])
    return float(x.sum()), dist.get_backend(), rank_device()


def test_simulated_devices_are_no_accelerators(monkeypatch):
    """Neither the caller's nor those of an earlier run choose the backend."""
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    dpkit.devices(2, kind="sim")
    with Workers(2) as workers:
        for _ in range(2):
            found = workers.run(on_simulated_devices)
            assert found == [(3.0, "gloo", torch.device("cpu"))] * 2


@pytest.mark.parametrize("world_size", [0, -2])
def test_too_few_processes(world_size):
    with pytest.raises(ValueError, match=rf"\(world_size: {world_size}\)"):
        launch(dist.get_rank, world_size)


class Net(nn.Linear):
    """A class that no rank can import, such as one of a notebook cell."""


Net.__module__ = "__main__"


def test_what_the_ranks_cannot_import_is_copied():
    seen = []

    def count(net):
        seen.append(net.in_features)
        return net, len(seen), lambda: 2 * net.out_features

    for _ in range(2):
        for net, length, twice in launch(count, 2, Net(3, 4)):
            assert type(net) is Net
            assert (length, twice()) == (1, 8)
    assert seen == []  # the ranks have copies


WITHOUT_CLOUDPICKLE = """
import sys
for name in [name for name in sys.modules if name.startswith("dpkit")]:
    del sys.modules[name]
sys.modules["cloudpickle"] = None
import dpkit
try:
    dpkit.launch(max, 1, 2, 3)
except ImportError as error:
    print(error)
"""


def test_only_a_launch_needs_cloudpickle(forking):
    program = forking.Popen(
        [sys.executable, "-c", WITHOUT_CLOUDPICKLE],
        stdout=forking.PIPE,
        text=True,
        start_new_session=True,
    )
    told = program.communicate()[0]
    assert told.startswith("cloudpickle copies functions to other processes")
    assert told.count("\n") == 1


def test_what_cannot_be_copied(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing may start
    with pytest.raises(TypeError, match="cannot pickle"):
        launch(max, 2, 3, threading.Lock())


@pytest.mark.parametrize("seconds", [0, -1, math.nan])
def test_a_time_in_which_nothing_can_run(monkeypatch, seconds):
    monkeypatch.setattr(Workers, "_run", None)  # no run may begin
    with pytest.raises(ValueError, match=rf"\(timeout_seconds: {seconds}\)"):
        launch(dist.get_rank, 2, timeout_seconds=seconds)


def test_what_is_no_function(monkeypatch):
    monkeypatch.setattr(Workers, "_run", None)
    with pytest.raises(TypeError, match=r"not a function \(fn: int\)"):
        launch(3, 2)


@pytest.mark.slow
def test_an_exception_of_a_rank(tmp_path, is_running):
    bad = 1  # the other rank sleeps for hours
    with pytest.raises(RuntimeError) as caught:
        launch(raise_on, 2, bad, str(tmp_path))
    text = str(caught.value)
    head, _, traceback = text.partition("\n\n")
    assert head == f"a rank raised an exception (rank: {bad} of 2)"
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert "in raise_on\n    raise KeyError" in traceback
    assert text.endswith(f"\nKeyError: 'number {bad}'")
    assert not any(map(is_running, pids(tmp_path, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "told"),
    [
        (partial(leave, 7), r"\(rank: 1 of 2, exit code: 7\)\n"),
        (sys.exit, r"\(rank: 1 of 2\)\n\n(.*\n)*SystemExit$"),
    ],
)
def test_a_rank_that_ends(how, told):
    with pytest.raises(RuntimeError, match=told):
        launch(end_on, 2, 1, how)


@pytest.mark.slow
def test_a_rank_that_ends_as_if_all_were_well():
    with pytest.raises(RuntimeError, match=r"\(rank: 0 of 1, exit code: 0\)"):
        launch(leave, 1, 0)


@pytest.mark.slow
def test_a_value_that_cannot_come_back():
    told = r"\(rank: 0 of 1\)(.*\n)*.*cannot pickle '_thread.lock'"
    with pytest.raises(RuntimeError, match=told):
        launch(return_a_lock, 1)


@pytest.mark.slow
def test_the_deadline_names_who_is_late(tmp_path, is_running):
    told = (
        r"in time \(ranks: 1, 2 of 3, timeout_seconds: 1.5\)\n\n"
        r"rank 1 was in hang\(\) at test_processes.py:\d+, for .* s, and let "
        r"no other of its threads run\n(  .*\n)*rank 2 was in hang(.*\n)*"
        r"rank 0 had returned$"
    )
    with Workers(3, "gloo") as workers:
        workers.run(note_pid, str(tmp_path))  # the processes have started
        start = time.monotonic()
        with pytest.raises(TimeoutError, match=told):
            workers.run(sleep_beyond, 1, str(tmp_path), timeout_seconds=1.5)
        assert time.monotonic() - start >= 1.5
        assert not any(map(is_running, pids(tmp_path, 3)))


# A program that launches functions of its own: no rank may run it again.
PROGRAM = """
import torch.distributed as dist
from dpkit.processes import launch
scale = 10
def times(x):
    return scale * x
def mine(x):
    return times(x) + dist.get_rank()
print(launch(mine, 2, 3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script", weekly("input")])
def test_a_function_of_the_program_itself(tmp_path, how):
    """For one of a notebook's cell, see test_in_jupyter."""
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    out = subprocess.run(
        [sys.executable, *([script] if how == "script" else [])],
        input=PROGRAM if how == "input" else "",
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout == "[30, 31]\n"
    assert out.stderr == ""


def test_a_tensor_that_lies_elsewhere():
    (device,) = dpkit.devices(1, "sim")
    x = torch.ones(2, 3, device=device)
    with pytest.raises(ValueError, match=r"\(2, 3\), device: sim:0"):
        launch(dist.get_rank, 2, x)


def test_a_backend_that_is_none():
    with pytest.raises(ValueError, match="backend: 'glo', known: "):
        launch(dist.get_rank, 2, backend="glo")
