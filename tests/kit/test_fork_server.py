"""Tests of the fork server: what forked ranks have from it, and its end."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dpkit.processes import Workers, forking, launch
from dpkit.processes.forking import fork_server

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="ranks are forked on Linux"
)

# Functions that the ranks run.


def state_of_parent():
    """Return what the parent runs: its threads, its children, its files."""
    parent = os.getppid()
    tasks = [*Path(f"/proc/{parent}/task").iterdir()]
    return parent, len(tasks), (tasks[0] / "children").read_text().split()


def draws():
    return random.random(), np.random.rand(), torch.rand(1).item()


def say(words):
    print(f"{words}\n", end="")  # one write: the ranks print at once


@pytest.fixture
def server(forking):
    return fork_server({"OMP_NUM_THREADS": "1", **os.environ})


def test_the_server_has_one_thread_and_no_other_child(server):
    """More threads would be missing in the forks, with what they hold."""
    with Workers(2, "gloo") as workers:
        for parent, num_threads, children in workers.run(state_of_parent):
            assert parent == server.pid
            assert num_threads == 1
            assert {*children} == {str(p.pid) for p in workers._processes}


def test_no_rank_is_a_fork_of_what_has_used_cuda(server):
    """Torch notes it where it is only asked how many GPUs there are."""
    assert launch(torch.cuda._is_in_bad_fork, 2) == [False, False]


def test_ranks_draw_other_numbers(server):
    """But for torch, whose generator begins with the same seed everywhere."""
    (a, b, c), (x, y, z) = launch(draws, 2)
    assert a != x
    assert b != y
    assert c == z


def test_what_ranks_print_goes_where_the_caller_prints(server, capfd):
    """Not to where it printed when the server began."""
    launch(say, 2, "three words of a rank")
    assert capfd.readouterr().out.splitlines() == 2 * ["three words of a rank"]


def test_a_variable_that_torch_has_read_is_for_a_new_python(
    server, monkeypatch
):
    assert launch(os.getppid, 1) == [server.pid]
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert launch(os.getppid, 1) == [os.getpid()]


def test_a_server_that_was_killed_is_started_again(monkeypatch):
    """And its ranks are gone with it."""
    monkeypatch.setattr(forking, "_servers", [])
    try:
        with Workers(2, "gloo") as workers:
            before = workers.run(os.getppid)
            os.kill(before[0], signal.SIGKILL)
            ends = [process.wait() for process in workers._processes]
            assert ends == 2 * [-signal.SIGKILL]
            after = workers.run(os.getppid)
            assert after[0] == after[1] != before[0]
    finally:
        forking._end()


def test_a_server_that_does_not_start(monkeypatch):
    monkeypatch.setattr(forking, "_servers", [])
    monkeypatch.setattr(forking, "SERVER_PROGRAM", "raise SystemExit(7)")
    told = r"ended while it started \(exit code: 7\)"
    try:
        with pytest.raises(RuntimeError, match=told):
            launch(os.getppid, 1)
    finally:
        forking._end()


def test_a_server_that_starts_too_slowly(monkeypatch):
    monkeypatch.setattr(forking, "_servers", [])
    slow = "import time; time.sleep(1000)"
    monkeypatch.setattr(forking, "SERVER_PROGRAM", slow)
    told = r"had not started in time \(timeout_seconds: 0.2\)"
    try:
        with Workers(1) as workers, pytest.raises(TimeoutError, match=told):
            workers.run(os.getppid, timeout_seconds=0.2)
    finally:
        forking._servers[0]._process.kill()
        forking._end()


IN_A_FORK = """
import os
from dpkit.processes import launch
print(*launch(os.getppid, 1), flush=True)
child = os.fork()
print(*launch(os.getppid, 1), flush=True)
if child:
    os.waitpid(child, 0)
"""


def test_a_fork_of_the_caller_has_a_server_of_its_own():
    """Else two processes would read one's answers."""
    program = [sys.executable, "-c", IN_A_FORK]
    told = subprocess.run(program, stdout=subprocess.PIPE, check=True).stdout
    first, *others = told.split()
    assert len(others) == 2
    assert first in others
    assert {*others} != {first}
    assert not any(Path(f"/proc/{int(pid)}").exists() for pid in others)


LEAVES_A_FORK = """
import os, time
from dpkit.processes import launch
print(*launch(os.getppid, 1))
child = os.fork()
if not child:
    time.sleep(9999)
print(child, flush=True)
os._exit(0)
"""


def test_the_server_ends_with_its_caller_not_with_a_fork_of_it(
    wait_until_ended,
):
    program = [sys.executable, "-c", LEAVES_A_FORK]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as caller:
        server, child = (int(caller.stdout.readline()) for _ in range(2))
    try:
        wait_until_ended([server])
    finally:
        os.kill(child, signal.SIGKILL)
