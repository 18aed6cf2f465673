"""Ranks that are processes: as ranks that are threads, and their end."""

import os
import signal
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from runpy import run_path

import pytest
import torch

from dpkit.runs.forked import idle
from dpkit.runs.forked.packing import Packed, put_back, unpack
from dpkit.runs.forked.requests import RankEnded, Requests, write_message
from dpkit.runs.forked.running import run_forked
from tests.forked_python import popen
from tests.runs.running_scripts import command
from tests.weekly import few_of

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)
ROOT = Path(__file__).parents[2]
BOTH_WAYS = [
    *(("engines", 4), ("few engines", 4)),
    *(("pipelines", 2), ("calls", 3)),
]

# PyTorch adds the gradients of these in the order of addresses in memory.
IN_ANY_ORDER = ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


def run_both_ways(way, size, what, path):
    """Run programs on ranks of one kind, in a process that can be forked."""
    program = (
        "import sys; from tests.runs.ranks_both_ways import main; "
        "main(*sys.argv[1:])"
    )
    words = [sys.executable, "-c", program, way, size, what, path]
    with popen(words, cwd=ROOT, start_new_session=True) as process:
        assert process.wait() == 0
    return torch.load(path, weights_only=False)


def same(one, other):
    """Return whether two results are equal to the bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same(one[key], other[key]) for key in one
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.slow
@pytest.mark.parametrize(("what", "size"), few_of(BOTH_WAYS, BOTH_WAYS[1:]))
def test_processes_do_what_threads_do(what, size, tmp_path):
    """The same values, the same times, and the same timeline."""
    threads, processes = (
        run_both_ways(way, size, what, tmp_path / f"{way}.pt")
        for way in ("threads", "forked")
    )
    assert threads.keys() == processes.keys()
    for name in threads:
        assert same(threads[name][0], processes[name][0]), name
        if name not in IN_ANY_ORDER:
            assert threads[name][1] == processes[name][1], name


PROGRAM = """
import os, signal, sys, time
import torch
import torch.distributed as dist

how, path = sys.argv[1:]
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
x = torch.ones(1000, device="cuda")
dist.all_reduce(x)
with open(path, "a") as file:
    print(os.getpid(), file=file)
if how == "raises" and rank == 1:
    raise ValueError("no")
if how == "exits" and rank == 1:
    sys.exit(3)
if how == "is killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if how == "calls another" and rank == 1:
    dist.barrier()
if how == "loops":
    print("ready", flush=True)
    while True:
        pass
if how != "returns" or rank != 1:
    dist.all_reduce(x)
"""
ENDS = {
    "raises": "rank 1 failed (ValueError: no)",
    "exits": "rank 1 failed (the script has ended with exit status 3)",
    "is killed": "rank 1 failed (its process was killed by SIGKILL, as by the "
    "system when the machine's memory runs out (the largest rank has used ",
    "returns": "no rank can go on (rank 0 waits in allreduce number 1 of "
    "group 0; rank 1 has returned; rank 2 waits in allreduce number 1 of "
    "group 0)",
    "calls another": "ranks call different operations",
}


def start(tmp_path, how, ranks=3):
    """Start the program on ranks; return the process and the file of ids."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ids = tmp_path / "ids"
    words = ["torchrun", "--nproc-per-node", ranks, script, how, ids]
    return command(*words), ids


@pytest.fixture
def assert_all_ended(wait_until_ended):
    """Wait until the ranks that have noted their numbers are gone.

    A process that ends closes its output a moment before it is gone.
    """

    def wait(ids):
        numbers = ids.read_text().split()
        assert numbers
        wait_until_ended(numbers)

    return wait


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_a_rank_that_ends_ends_all_with_a_word(
    how, tmp_path, assert_all_ended
):
    process, ids = start(tmp_path, how)
    text, _ = process.communicate()
    assert process.returncode == 1
    assert ENDS[how] in text
    # Where the others waited: the last line of the program.
    where = f"line {len(PROGRAM.splitlines())} of {tmp_path / 'program.py'}"
    assert f"rank 0 was at {where}" in text
    assert_all_ended(ids)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_ranks_that_compute(tmp_path, number, assert_all_ended):
    process, ids = start(tmp_path, "loops", ranks=2)
    assert any("ready" in line for line in process.stdout)
    time.sleep(0.5)
    process.send_signal(number)
    text, _ = process.communicate()
    assert process.returncode == 128 + number
    assert "interrupted; all that was started has ended" in text
    assert_all_ended(ids)


@pytest.mark.slow
def test_ranks_end_with_a_parent_that_was_killed(tmp_path, assert_all_ended):
    process, ids = start(tmp_path, "loops", ranks=2)
    assert any("ready" in line for line in process.stdout)
    process.kill()
    process.communicate()  # the ranks have its output open, too
    assert_all_ended(ids)


def test_tensors_come_back_from_shared_memory():
    """Of any dtype and layout, empty ones, and those that only come back."""
    given = [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor([True, False]),
        torch.ones(3, dtype=torch.bfloat16),
        torch.empty(0),
    ]
    taken = torch.zeros(2)
    packed = Packed((given, taken), lambda x: x is not taken)
    (xs, y), memory = unpack(packed.parcel, os.getpid())
    for x, original in zip(xs, given, strict=True):
        assert torch.equal(x, original)
        assert x.stride() == original.stride()
    for x in xs:
        x += x
    y.fill_(7)
    known = put_back(packed.parcel, (xs, y), memory)
    before = given[0].clone()
    packed.take_out(lambda x: x is not given[1], known)
    assert torch.equal(given[0], 2 * before)
    assert given[1].tolist() == [True, False]  # it was not written to
    assert taken.tolist() == [7, 7]


def test_a_forked_worker_cannot_use_the_devices_of_its_rank(monkeypatch):
    """Else it would write into the connection of the rank."""
    requests = Requests(None)
    requests.add("compute")
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with pytest.raises(RuntimeError, match="has forked"):
        requests.send()


def test_after_ctrl_c_a_rank_asks_no_more(monkeypatch):
    """It would take the answer to the question before for its own."""
    ours, its = Pipe()

    def interrupted(connection):
        raise KeyboardInterrupt

    requests = Requests(its)
    with monkeypatch.context() as patch:
        patch.setattr("dpkit.runs.forked.requests.read_message", interrupted)
        with pytest.raises(KeyboardInterrupt):
            requests.ask("mark", 0)
    write_message(ours, ("answer", 1))
    with pytest.raises(RankEnded, match="interrupted"):
        requests.ask("mark", 0)


def test_a_value_that_cannot_be_sent_is_an_error(run_new):
    text = run_new(
        "from dpkit import sim\n"
        "from dpkit.runs.forked.running import run_forked\n"
        "sim.register()\n"
        "sim.configure(num_devices=2)\n"
        "try:\n"
        "    run_forked(lambda here: [print], 2)\n"
        "    run_forked(lambda here: [lambda: 1], 2)\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    assert text.startswith("rank 0 failed (AttributeError: Can't pickle")


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match=r"need Linux.*darwin"):
        run_forked(print, 2)


def test_other_systems_lack_a_signal_and_get_to_the_refusal(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(signal, "SIGRTMAX")
    assert run_path(idle.__file__)["ASKS"] == signal.SIGTERM
