"""Tests of dpkit.processes.Workers: what stays between runs, what does not."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import log2
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dpkit.processes import Workers, starting
from dpkit.processes import workers as workers_module
from dpkit.processes.locations import (
    FIRST_LOOK_SECONDS,
    LOOK_SECONDS,
    NUM_CALLS,
)

# Functions that the ranks run.


def state(new):
    """Return what the run before left, and leave something for the next."""
    left = dist.get_rank(), os.getpid(), torch.get_default_dtype()
    torch.set_default_dtype(new)
    return left


def reduce_in_a_new_group():
    x = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    return x, len(os.listdir("/proc/self/fd"))


def surroundings():
    return os.getcwd(), sys.path, dict(os.environ), sys.stdin.read()


def change_surroundings():
    os.chdir("/")
    os.environ["DPKIT_LEFT"] = "1"
    sys.path.append("/left")


def fail():
    raise KeyError("3")


def interrupt(pid):
    """Send Ctrl-C to the caller, once, and go on."""
    if dist.get_rank() == 0:
        os.kill(pid, signal.SIGINT)
    time.sleep(9999)


def turns(folder):
    """Note when this run begins and ends."""
    begin = time.monotonic()
    time.sleep(0.1)
    return begin, time.monotonic()


def busy(depth, until):
    """Be at many places in short time, some of them deep."""
    while time.monotonic() < until:
        if depth:
            busy(depth - 1, time.monotonic() + 0.003)


def start_others(folder, how):
    """Start a process of our own, and let rank 1 fail."""
    other = subprocess.Popen(["sleep", "9999"])
    Path(folder, str(other.pid)).touch()
    dist.barrier()
    if dist.get_rank() == 1:
        how("3")
    time.sleep(9999)


def notes_of_a_busy_time():
    """Return the notes that are written while this rank is busy."""
    notes, write, begin = [], os.pwrite, time.monotonic()

    def noted(file, note, place):
        notes.append(note.decode().rstrip())
        return write(file, note, place)

    os.pwrite = noted
    busy(30, begin + 1)
    os.pwrite = write
    return time.monotonic() - begin, notes


@pytest.fixture(scope="module")
def workers():
    with Workers(2, "gloo") as workers:
        pids(workers)  # the processes start here
        yield workers
        last = pids(workers)
    assert not any(Path(f"/proc/{pid}").exists() for pid in last)
    workers.close()  # again does no harm


@pytest.fixture
def own_workers():
    """Workers for a test that ends their processes."""
    with Workers(2, "gloo") as workers:
        yield workers


def pids(workers):
    return workers.run(os.getpid)


def test_what_stays(workers):
    first = workers.run(state, torch.float64)
    second = workers.run(state, torch.float32)
    for rank in range(2):
        assert first[rank] == (rank, second[rank][1], torch.float32)
        assert second[rank][2] == torch.float64


def test_a_new_group_for_each_run(workers):
    highest = []  # of the descriptors after each run, on all ranks
    for _ in range(5):
        found = workers.run(reduce_in_a_new_group)
        for x, _ in found:
            assert torch.equal(x, torch.full((4,), 3.0))
        highest.append(max(number for _, number in found))
    # None is left behind: with one for each run, the last had three more. One
    # of the run before may still be there, where a thread of it has not ended.
    assert highest[-1] <= highest[1] + 1


def test_the_surroundings_of_the_call(workers, tmp_path, monkeypatch):
    workers.run(change_surroundings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setenv("DPKIT_TOLD", "a b")
    for rank, found in enumerate(workers.run(surroundings)):
        folder, path, environment, read = found
        assert folder == str(tmp_path)
        assert path == [entry or os.getcwd() for entry in sys.path]
        assert environment["DPKIT_TOLD"] == "a b"
        assert "DPKIT_LEFT" not in environment
        assert environment["RANK"] == str(rank)
        # Without it a rank that ends soon cuts off one that still joins.
        assert environment["TORCH_DIST_INIT_BARRIER"] == "1"
        assert read == ""


def test_a_module_that_is_new(workers, tmp_path, monkeypatch):
    name = f"new_{random.randrange(10**9)}"
    monkeypatch.syspath_prepend(tmp_path)
    pids(workers)
    (tmp_path / f"{name}.py").write_text("def value(): return 7")
    assert workers.run(__import__(name).value) == [7, 7]


def test_a_job_that_cannot_go_costs_nothing(workers):
    before = pids(workers)
    with pytest.raises(TypeError, match="cannot pickle"):
        workers.run(max, threading.Lock())
    assert pids(workers) == before


def test_threads_take_turns(workers, tmp_path):
    with ThreadPoolExecutor(4) as threads:
        runs = threads.map(lambda _: workers.run(turns, "x"), range(4))
        spans = sorted((min(b), max(e)) for b, e in (zip(*r) for r in runs))
    for (_, end), (begin, _) in pairwise(spans):
        assert end <= begin


@pytest.mark.slow
def test_ranks_outlive_the_thread_that_has_started_them(monkeypatch):
    """For the kernel that thread is their parent, where they are Pythons."""
    monkeypatch.setattr(starting, "fork_server", lambda environment: None)
    with Workers(2, "gloo") as workers:
        with ThreadPoolExecutor(1) as threads:
            before = threads.submit(pids, workers).result()
        # The thread has ended.
        assert pids(workers) == before


@pytest.mark.slow
def test_new_processes_after_a_failure(own_workers):
    before = pids(own_workers)
    with pytest.raises(RuntimeError, match="KeyError: '3'") as caught:
        own_workers.run(fail)
    # No call of the machinery stands between the student and the error.
    assert str(caught.value).count("File ") == 1
    assert not set(pids(own_workers)) & set(before)


@pytest.mark.slow
def test_an_interrupted_run(own_workers):
    before = pids(own_workers)
    with pytest.raises(KeyboardInterrupt):
        own_workers.run(interrupt, os.getpid())
    assert not any(Path(f"/proc/{pid}").exists() for pid in before)


@pytest.mark.slow
def test_what_ranks_have_started_ends_with_them(
    own_workers, tmp_path, wait_until_ended
):
    with pytest.raises(RuntimeError, match="exit code: 7"):
        own_workers.run(start_others, str(tmp_path), leave)
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    wait_until_ended(started)


def leave(word):
    os._exit(7)


@pytest.mark.slow
def test_an_interrupt_while_the_ranks_start(monkeypatch):
    """The one that is just starting is ended, too."""
    real, started = workers_module.start, []

    def interrupted(*arguments):
        started.append(real(*arguments))
        signal.raise_signal(signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(workers_module, "start", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with Workers(2, "gloo") as two, pytest.raises(KeyboardInterrupt):
        two.run(os.getpid)
    assert [process.returncode for process in started] == [-9, -9]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_the_folder_goes_with_a_parent_that_is_killed(forking, tmp_path):
    """Where the ranks come to hear of it, as those of another thread do."""
    program = forking.Popen(
        [sys.executable, "-c", ORPHANS],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=forking.PIPE,
        start_new_session=True,
    )
    with program:
        assert program.stdout.read(1) == b"0"
        assert len(os.listdir(tmp_path)) == 1
        program.kill()
    deadline = time.monotonic() + 1200
    while os.listdir(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert os.listdir(tmp_path) == []


ORPHANS = """
import threading, time
import torch.distributed as dist
from dpkit.processes import Workers
def run():
    with Workers(1, "gloo") as workers:
        print(*workers.run(dist.get_rank), flush=True)
        time.sleep(9999)
threading.Thread(target=run).start()
"""


@pytest.mark.slow
def test_a_rank_that_ends_while_it_rests(own_workers):
    before = pids(own_workers)
    os.kill(before[1], signal.SIGKILL)
    while own_workers._processes[1].poll() is None:
        time.sleep(0.01)
    assert not set(pids(own_workers)) & set(before)


def test_the_notes_cost_little(workers):
    """They are few, at most so many in a second, and short."""
    for seconds, notes in workers.run(notes_of_a_busy_time):
        # The pauses between the first are shorter.
        first = log2(LOOK_SECONDS / FIRST_LOOK_SECONDS)
        assert 1 <= len(notes) <= seconds / LOOK_SECONDS + first + 1
        assert all(note.count("\n") <= NUM_CALLS for note in notes)
        assert max(note.count("\n") for note in notes) > 10
