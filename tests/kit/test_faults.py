"""Faults of real processes: no hang, no orphan, and a message that names."""

import ctypes
import faulthandler
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from dpkit.processes import Workers, launch, rank_device
from dpkit.processes.locations import Note, read_answer

pytestmark = pytest.mark.slow

# Functions that the ranks run.


def reduce_until(fault):
    """Reduce for ever; on rank 1, the fault happens."""
    x = torch.ones(2**20, device=rank_device())
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        fault()
    while True:
        dist.all_reduce(x)
        x.sum().item()  # on a GPU, wait for it


def be_killed_in_all_reduce():
    """Rank 1 is killed, from another thread, while it waits for rank 0."""
    x = torch.ones(2**20, device=rank_device())
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        time.sleep(9999)
    kill = (os.getpid(), signal.SIGKILL)
    threading.Timer(0.5, os.kill, kill).start()
    dist.all_reduce(x)
    x.sum().item()  # on a GPU, wait for it


def loop_for_ever():
    while True:
        sum(range(1000))


def keep_the_lock():
    """Let no other thread of this process run."""
    while True:  # a signal ends a sleep: the one that asks where a rank is
        ctypes.PyDLL(None).sleep(9999)


def broadcast():
    dist.broadcast(torch.ones(2**20), 0)


def return_early():
    if dist.get_rank() != 1:
        dist.barrier()


def shapes_that_differ():
    dist.all_reduce(torch.ones(3 if dist.get_rank() else 2**20))


def meet_at_port(port):
    """Meet by TCP, as programs do that torchrun starts."""
    dist.destroy_process_group()
    where = f"tcp://localhost:{port}"
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", where, rank=rank, world_size=2)


def sum_and_pid():
    x = torch.ones(5)
    dist.all_reduce(x)
    time.sleep(0.5)
    return x[0].item(), os.getpid()


def own_pid():
    return os.getpid()


@pytest.fixture(scope="module")
def pool():
    with Workers(2, "gloo") as workers:
        yield workers


@pytest.fixture
def workers(pool, wait_until_ended):
    """Two ranks that run; after the fault, none of them does."""
    pids = pool.run(own_pid)
    yield pool
    wait_until_ended(pids)


HERE = r"at test_faults\.py:\d+"
WAITS = rf"waiting in all_reduce\(\), called from reduce_until\(\) {HERE}"
KILLED = WAITS.replace("reduce_until", "be_killed_in_all_reduce")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            loop_for_ever,
            rf"rank 1 was in loop_for_ever\(\) {HERE}, for .* s\n",
        ),
        (
            keep_the_lock,
            rf"rank 1 was in keep_the_lock\(\) {HERE}, for .* s, and let no "
            r"other of its threads run\n",
        ),
        (
            broadcast,
            rf"rank 1 was waiting in broadcast\(\), called from broadcast\(\) "
            rf"{HERE}(.*\n)*\nthe ranks wait for each other in different "
            r"calls \(all_reduce, broadcast\)",
        ),
    ],
)
def test_a_rank_that_hangs(workers, fault, told):
    start = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        workers.run(reduce_until, fault, timeout_seconds=2)
    assert time.monotonic() - start >= 2
    head, _, text = str(caught.value).partition("\n\n")
    assert head == (
        "some ranks had not returned in time (ranks: 0, 1 of 2, "
        "timeout_seconds: 2)"
    )
    assert re.match(rf"rank 0 was {WAITS}, for .* s\n", text)
    assert re.search(told, text)


def test_the_answer_has_names_beyond_ascii(tmp_path):
    """Python's faulthandler writes ü as "\\xfc", and notes have it as ü."""
    path, number = "/Bücher und Netze/表→.py", threading.get_ident()
    program = compile("answer()", path, "exec")
    with open(tmp_path / "answer-0", "w") as file:
        names = {"answer": lambda: faulthandler.dump_traceback(file)}
        exec(program, names)
    note = Note("running", 0.0, 0.0, f"{number:x}", [])
    found = read_answer(tmp_path, 0, note)
    assert path in [call.file for call in found.calls]


def test_a_rank_that_is_killed(workers):
    with pytest.raises(RuntimeError) as caught:
        workers.run(be_killed_in_all_reduce)
    head, _, text = str(caught.value).partition("\n\n")
    told = "a rank ended without a result (rank: 1 of 2, signal: 9, Killed)"
    assert head == told
    assert re.match(rf"rank 1 was last seen {KILLED}\n", text)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("fn", "args", "error"),
    [
        (be_killed_in_all_reduce, [], RuntimeError),
        (reduce_until, [keep_the_lock], TimeoutError),
    ],
)
def test_faults_of_a_rank_that_has_a_gpu(need_gpus, fn, args, error):
    need_gpus(2)
    with pytest.raises(error, match=r"rank 1 was (last seen|in keep_the)"):
        launch(fn, 2, *args, backend="nccl", timeout_seconds=30)


def test_shapes_that_differ(workers):
    """Of which gloo says what it finds, and aborts."""
    with pytest.raises(RuntimeError, match=r"rank: [01] of 2") as caught:
        workers.run(shapes_that_differ)
    assert "all_reduce(" in str(caught.value)
    assert "tensors of two ranks differ in size" in str(caught.value)


def test_a_rank_that_returns_too_early(workers):
    with pytest.raises(
        RuntimeError, match=r"rank: 0 of 2\)(.*\n)*.*[Cc]onnection"
    ):
        workers.run(return_early)


@pytest.fixture
def port():
    """A port that another program listens at."""
    with socket.create_server(("localhost", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_taken(workers, port):
    told = r"rank: 0 of 2\)(.*\n)*.*(?i:address already in use)"
    with pytest.raises(RuntimeError, match=told):
        workers.run(meet_at_port, port)


LATE = """
import os, time
if os.environ.get("RANK") == "1":
    time.sleep(9999)
def work(): pass
"""


def test_a_rank_that_never_joins(workers, tmp_path, monkeypatch):
    (tmp_path / "late.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    import late

    told = (
        r"\(ranks: 0, 1 of 2, timeout_seconds: 1.5\)\n\n"
        r"rank 0 was waiting for all ranks to join the group, for .*\n"
        r"rank 1 was importing, in <module> at late.py:4, for \d+\.\d s\n"
    )
    with pytest.raises(TimeoutError, match=told):
        workers.run(late.work, timeout_seconds=1.5)


def test_two_launches_at_once(port, monkeypatch, wait_until_ended):
    """And the port that other programs would meet at is taken."""
    monkeypatch.setenv("MASTER_PORT", str(port))
    with ThreadPoolExecutor() as threads:
        ok = threads.submit(launch, sum_and_pid, 2, backend="gloo")
        bad = threads.submit(launch, sys.exit, 1, 5, backend="gloo")
        with pytest.raises(RuntimeError, match="SystemExit: 5"):
            bad.result()
        (one, first), (other, second) = ok.result()
    assert one == other == 2
    wait_until_ended([first, second])


IMPORTS = "import threading, worker; from dpkit.processes import starting"
WORKER = """
import ctypes, os, signal, threading
from dpkit.processes import launch
def be_stopped():
    os.write(1, f"{os.getpid()}\\n".encode())  # at once, or lines mix
    os.kill(os.getpid(), signal.SIGSTOP)
def keep_the_lock():
    print(os.getpid(), flush=True)
    ctypes.PyDLL(None).sleep(9999)  # lets no thread of this process run
def listen():
    print(os.getpid(), flush=True)
    threading.Event().wait(9999)
"""
FROM_A_THREAD = (
    "threading.Thread(target=worker.launch, args=(worker.listen, 1)).start()"
)
# As on other systems, and where torch would not read a variable.
NEW = "starting.fork_server = lambda environment: None;"


@pytest.mark.parametrize(
    ("end", "call"),
    [
        (signal.SIGINT, "worker.launch(worker.be_stopped, 2)"),
        (signal.SIGTERM, "worker.launch(worker.be_stopped, 2)"),
        (signal.SIGKILL, "worker.launch(worker.keep_the_lock, 1)"),
        (signal.SIGKILL, FROM_A_THREAD),
        (signal.SIGINT, f"{NEW} worker.launch(worker.be_stopped, 2)"),
        (signal.SIGKILL, f"{NEW} worker.launch(worker.keep_the_lock, 1)"),
        (signal.SIGKILL, f"{NEW} {FROM_A_THREAD}"),
    ],
    ids=[
        "interrupted",
        "terminated",
        "killed",
        "killed, called from a thread",
        "interrupted, ranks are new Pythons",
        "killed, ranks are new Pythons",
        "killed, called from a thread, ranks are new Pythons",
    ],
)
def test_the_ranks_end_with_their_parent(
    forking, tmp_path, is_running, wait_until_ended, end, call
):
    """By Ctrl-C, which it can see to, and by a kill, which it cannot.

    SIGTERM, as of a cluster, is a kill for a Python that does not handle it.
    """
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "left").mkdir()
    with forking.Popen(
        [sys.executable, "-c", f"{IMPORTS}\n{call}"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "left")},
        stdout=forking.PIPE,
        stderr=forking.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        count = 2 if "be_stopped, 2" in call else 1
        ranks = [int(parent.stdout.readline()) for _ in range(count)]
        assert all(map(is_running, ranks))
        os.killpg(parent.pid, end)  # as a terminal does
        # It is over when no rank holds the pipe.
        _, errors = parent.communicate()
    told = re.findall("^KeyboardInterrupt$", errors, re.MULTILINE)
    assert len(told) == (end == signal.SIGINT)
    wait_until_ended(ranks)
    if end == signal.SIGINT or NEW not in call:
        left, deadline = tmp_path / "left", time.monotonic() + 1200
        while os.listdir(left) and time.monotonic() < deadline:
            time.sleep(0.01)  # the server is to remove it
        assert os.listdir(left) == []


NOTED = """
import os, time
from pathlib import Path
def wait(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(9999)
"""


def reply(client, call):
    while True:
        message = client.get_shell_msg(timeout=1200)
        if message["parent_header"]["msg_id"] == call:
            return message["content"]


def run_cell(client, source):
    """Return the reply to a cell, and what it printed."""
    printed = []

    def keep(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    return client.execute_interactive(source, timeout=1200, output_hook=keep)[
        "content"
    ], "".join(printed)


IN_JUPYTER = """
import noted, torch.distributed as dist
from dpkit.processes import launch
start = 10
def mine(): return start + dist.get_rank()
"""


@pytest.mark.weekly
def test_in_jupyter(tmp_path, wait_until_ended):
    from jupyter_client.manager import start_new_kernel  # not on ranks

    (tmp_path / "noted.py").write_text(NOTED)
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        run_cell(client, IN_JUPYTER)
        # Or the kernel would abort what comes soon after the interrupt.
        waits = "launch(noted.wait, 1, 'pid')"
        call = client.execute(waits, stop_on_error=False)
        path = tmp_path / "pid"
        while not (path.exists() and path.read_text()):
            time.sleep(0.05)
        rank = int(path.read_text())
        manager.interrupt_kernel()
        assert reply(client, call)["ename"] == "KeyboardInterrupt"
        wait_until_ended([rank])
        # The kernel is well, and launches what is defined in a cell.
        done, printed = run_cell(client, "print(launch(mine, 1))")
        assert (done["status"], printed) == ("ok", "[10]\n")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
