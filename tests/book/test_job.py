"""The training job: on any number of ranks, killed, resumed, cut off.

A rank is forked from a process that has imported torch, which saves seconds
each time; one test starts the ranks by torchrun, as a reader does.
"""

import copy
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from dpbook.__main__ import main
from dpbook.common.datasets import Labelled, load_fashion_mnist
from dpbook.job import run as run_module
from dpbook.job.checkpoints import Checkpoints, unpack
from dpbook.job.ranks import Ranks, brief, is_of_others, join_job
from dpbook.job.resume import resume, train_to
from dpbook.job.roll_call import RollCall
from dpbook.job.run import Run, Settings
from tests.weekly import weekly

CPU = torch.device("cpu")
QUICK = ["--model", "linear", "--batch-size", "500"]

# What a rank runs, given where it is to be killed, and its arguments.
RANK = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from dpbook.__main__ import main
from dpbook.job import roll_call
from dpbook.job import run
from torch import nn

class Scrambled(nn.Module):  # made in another order than it is used
    def __init__(self, seed):
        super().__init__()
        self.last, self.first = nn.Linear(63, 10), nn.Linear(784, 63)
    def forward(self, X):
        return self.last(self.first(X.flatten(1)).tanh())

class Buggy(nn.Sequential):  # on rank 1, after some steps
    def __init__(self, seed):
        super().__init__(nn.Flatten(), nn.Linear(784, 10))
        self.count = 0
    def forward(self, X):
        self.count += 1
        if self.count > 9 and os.environ["RANK"] == "1":
            raise KeyError("a bug")
        return super().forward(X)

class Chain(nn.Sequential):  # 0 waits for 1, and 1 for 2, which is gone
    def __init__(self, seed):
        super().__init__(nn.Flatten(), nn.Linear(784, 10))
    def forward(self, X):
        rank = int(os.environ["RANK"])
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.recv(torch.zeros(1), rank + 1)

class Idle(nn.Sequential):  # rank 1 lives, and takes no part
    def __init__(self, seed):
        super().__init__(nn.Flatten(), nn.Linear(784, 10))
    def forward(self, X):
        if os.environ["RANK"] == "1":
            time.sleep(1000)
        return super().forward(X)

class Deaf(Idle):  # nor notices that 2 is gone, as 0 does
    def forward(self, X):
        if os.environ["RANK"] == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ["RANK"] == "0":
            dist.recv(torch.zeros(1), 2)
        return super().forward(X)

roll_call.ROLL_CALL_SECONDS, roll_call.NOTICE_SECONDS = 4, 2
run.MODELS["idle"] = Idle
run.MODELS["deaf"] = Deaf
run.MODELS["chain"] = Chain
run.MODELS["scrambled"] = Scrambled
run.MODELS["buggy"] = Buggy

def end_at(call, times):
    count, real = [0], getattr(os, call)
    def counted(*arguments):
        count[0] += call == "fsync" or ".ckpt" in str(arguments[0])
        if count[0] == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    setattr(os, call, counted)

place = json.loads(sys.argv[1])
if place:
    end_at(*place)
sys.exit(main(["train", *sys.argv[2:]]))
"""


class Forker:
    """Starts ranks of ``python -m dpbook train``."""

    def __init__(self, popen, environments, folder):
        self.popen, self.environments = popen, environments
        self.folder, self.num_jobs = folder, 0

    def start(self, world_size, *arguments, end_at=None):
        """Start all ranks of a job; ``end_at``: where rank 0 is killed.

        In an argument, {rank} stands for the rank that is given it.
        """
        self.num_jobs += 1
        job = Job()
        for rank, environment in enumerate(self.environments(world_size)):
            log = self.folder / f"log-{self.num_jobs}-{rank}"
            place = json.dumps(end_at if rank == 0 else None)
            words = [sys.executable, "-c", RANK, place]
            words += [str(word).format(rank=rank) for word in arguments]
            own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            if world_size > 1:
                own |= environment
            with log.open("w") as file:
                job.ranks.append(
                    self.popen(
                        words,
                        env=os.environ | own,
                        stdout=file,
                        stderr=file,
                        start_new_session=True,
                    )
                )
            job.logs.append(log)
        return job

    def run(self, world_size, *arguments):
        """Return what rank 0 prints, when all ranks have ended well."""
        job = self.start(world_size, *arguments)
        assert job.wait() == [0] * world_size, job.told(0)
        assert [job.told(r) for r in range(1, world_size)] == [""] * (
            world_size - 1
        )
        return job.told(0)


class Job:
    """The ranks of one job."""

    def __init__(self):
        self.ranks, self.logs = [], []

    def told(self, rank):
        return self.logs[rank].read_text()

    def wait(self, ranks=None):
        """Return how these ranks end; None stands for all."""
        those = range(len(self.ranks)) if ranks is None else ranks
        return [self.ranks[rank].wait() for rank in those]

    def kill(self, ranks, how=signal.SIGKILL):
        for rank in ranks:
            self.ranks[rank].send_signal(how)

    def strike(self, rank, how=signal.SIGKILL):
        """Harm a rank, and note when."""
        self.struck = time.time()
        self.kill([rank], how)

    def seconds_until_told(self, ranks):
        """Return how long after it was struck these ranks said their last."""
        last = max(self.logs[rank].stat().st_mtime for rank in ranks)
        return last - self.struck

    def until(self, words, times=1):
        """Wait until rank 0 has printed some words, so many times."""
        deadline = time.monotonic() + 1200
        while self.told(0).count(words) < times:
            assert time.monotonic() < deadline, words
            time.sleep(0.005)


@pytest.fixture(scope="module")
def forker(forking, environments, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    return Forker(forking.Popen, environments, logs)


def digest(told):
    (found,) = re.findall(r"sha256 of the parameters (\w{64})\n", told)
    return found


# One process


@pytest.fixture
def alone():
    with join_job(60) as ranks:
        yield ranks


JOIN_AFTER_SIMULATING = """
import torch.distributed as dist
from dpkit import sim
from dpbook.job.ranks import join_job
sim.register()
with join_job(60) as ranks:
    print(ranks.device, dist.get_backend())
"""


def test_simulated_devices_are_no_accelerators(forking, monkeypatch):
    """In a process of its own: NCCL without a GPU would end this one."""
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    process = forking.Popen(
        [sys.executable, "-c", JOIN_AFTER_SIMULATING],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        stdout=forking.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.communicate()[0] == "cpu gloo\n"
    assert process.returncode == 0


HOSTS = """
import os, socket
socket.gethostname = lambda: "host-" + os.environ["RANK"]
from dpbook.job.ranks import join_job
with join_job(60) as ranks:
    print(ranks.names([0, 1]))
    ranks.finish()
"""


def test_each_rank_knows_the_hosts_of_all(forking, environments):
    processes = [
        forking.Popen(
            [sys.executable, "-c", HOSTS],
            env=os.environ | environment | {"CUDA_VISIBLE_DEVICES": ""},
            stdout=forking.PIPE,
            text=True,
            start_new_session=True,
        )
        for environment in environments(2)
    ]
    told = [process.communicate()[0] for process in processes]
    assert told == ["rank 0 on host-0, rank 1 on host-1\n"] * 2


def small(num_examples):
    images, labels = load_fashion_mnist()[0]
    return Labelled(images[:num_examples], labels[:num_examples])


def test_it_is_plain_sgd(alone):
    """On each batch, the last one smaller, over two epochs."""
    settings = Settings("lenet", batch_size=7, lr=0.1, momentum=0.8, seed=5)
    train_set = small(17)
    run = Run(settings, train_set, alone)
    net = run_module.MODELS["lenet"](5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8)
    sizes = []
    for step in range(6):
        rows = run.rows(step)
        X, y = train_set.images[rows], train_set.labels[rows]
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        run.take_step()
        sizes.append(len(rows))
        torch.testing.assert_close(
            list(run.module.parameters()), list(net.parameters())
        )
    assert sizes == [7, 7, 3] * 2


def test_rows_of_a_step(alone):
    run = Run(Settings("linear", batch_size=7), small(17), alone)
    epochs = [
        torch.cat([run.rows(step) for step in range(3 * e, 3 * e + 3)])
        for e in range(3)
    ]
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, torch.arange(17))
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])
    other = Run(Settings("linear", batch_size=7, seed=1), small(17), alone)
    assert not torch.equal(run.rows(0), other.rows(0))
    assert torch.equal(run.rows(4), run.rows(4))


def forgetful(seed):
    """Dropout draws random numbers, batch norm has buffers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 9), nn.BatchNorm1d(9), nn.Dropout(),
        nn.Linear(9, 10),
    )  # fmt: skip


@pytest.mark.parametrize("taken", [0, 1, 3, 4])
def test_what_a_state_has_to_hold(alone, taken, monkeypatch):
    monkeypatch.setitem(run_module.MODELS, "forgetful", forgetful)
    settings = Settings("forgetful", batch_size=6)
    whole, first = (Run(settings, small(17), alone) for _ in range(2))
    train_to(whole, 5, None, every=1)
    train_to(first, taken, None, every=1)
    state = first.state()
    torch.rand(3)
    second = Run(settings, small(17), alone)
    second.load(state)
    train_to(second, 5, None, every=1)
    assert second.digest() == whole.digest()
    other = Run(replace(settings, seed=1), small(17), alone)
    train_to(other, 5, None, every=1)
    assert other.digest() != whole.digest()


def test_all_of_the_test_set_counts(alone):
    run = Run(Settings("linear"), small(17), alone)
    train_to(run, 2, None, every=9)
    test_set = load_fashion_mnist()[1]
    with torch.no_grad():
        scores = run.module(test_set.images)
    correct = int((scores.argmax(dim=1) == test_set.labels).sum())
    assert run.count_correct(test_set) == correct
    assert run.module.training


def test_saved_when_due_and_at_the_end(alone, tmp_path, capsys):
    run = Run(Settings("linear", batch_size=6), small(17), alone)
    checkpoints = Checkpoints(tmp_path, {}, keep=9)
    train_to(run, 7, checkpoints, every=3)
    paths = [checkpoints.path(step) for step in (3, 6, 7)]
    assert sorted(tmp_path.glob("step*")) == paths
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"step 3 of 7: saved {paths[0]}"
    again = Run(Settings("linear", batch_size=6), small(17), alone)
    (line,) = resume(again, checkpoints)
    assert line == f"resumed from {paths[-1]}"
    assert (again.step, again.digest()) == (7, run.digest())


def lose_a_momentum(state):
    del state["optimizer"]["state"][1]


def cut_a_momentum(state):
    buffers = state["optimizer"]["state"][0]
    buffers["momentum_buffer"] = buffers["momentum_buffer"][:, :5]


def cut_a_weight(state):
    state["model"]["1.weight"] = state["model"]["1.weight"][:3]


def lose_the_parameters(state):
    del state["model"]


@pytest.mark.parametrize(
    "harm",
    [lose_a_momentum, cut_a_momentum, cut_a_weight, lose_the_parameters],
)
def test_a_state_that_does_not_fit_is_passed_over(alone, tmp_path, harm):
    settings = Settings("linear", batch_size=6)
    run = Run(settings, small(17), alone)
    checkpoints = Checkpoints(tmp_path, vars(settings))
    train_to(run, 3, checkpoints, every=3)
    whole = run.digest()
    train_to(run, 4, None, every=1)
    state = run.state()
    harm(state)
    checkpoints.save(4, state)
    again = Run(settings, small(17), alone)
    refused, resumed = resume(again, checkpoints)
    assert refused.startswith(f"refused: {checkpoints.path(4)}: does not fit")
    assert resumed == f"resumed from {checkpoints.path(3)}"
    assert (again.step, again.digest()) == (3, whole)
    train_to(again, 4, None, every=1)
    assert again.digest() == run.digest()


@pytest.mark.parametrize(
    ("place", "part", "told"),
    [
        ("step", -5, "the step is negative (step: -5)"),
        ("step", 2, "another step's checkpoint (step: 2 in its state, 4 in"),
        ("step", True, "does not fit this run (state/step: bool there, int"),
        ("step", 4.0, "does not fit this run (state/step: float there, int"),
        ("world_size", 0, "the count is below one (world_size: 0)"),
        ("world_size", "1", "does not fit this run (state/world_size: str"),
        (
            "model/1.weight",
            torch.empty(10, 784, device="meta"),
            "does not fit this run (state/model/1.weight: float32 of shape "
            "(10, 784) without values (meta) there, float32",
        ),
        (
            "model/1.bias",
            torch.tensor([torch.nan, -torch.inf] + [1.0] * 8),
            "the run had diverged (state/model/1.bias: 2 of 10 values are",
        ),
        (
            "optimizer/state/1/momentum_buffer",
            torch.full((10,), torch.inf),
            "the run had diverged (state/optimizer/state/1/momentum_buffer: "
            "10 of 10 values are not finite)",
        ),
    ],
)
def test_a_state_that_cannot_be_is_passed_over(
    alone, tmp_path, place, part, told
):
    settings = Settings("linear", batch_size=6)
    run = Run(settings, small(17), alone)
    checkpoints = Checkpoints(tmp_path, vars(settings))
    train_to(run, 3, checkpoints, every=3)
    whole = run.digest()
    state = copy.deepcopy(run.state() | {"step": 4})
    *above, name = [int(x) if x == "1" else x for x in place.split("/")]
    inner = state
    for key in above:
        inner = inner[key]
    assert name in inner
    inner[name] = part
    checkpoints.save(4, state)
    again = Run(settings, small(17), alone)
    refused, resumed = resume(again, checkpoints)
    assert refused.startswith(f"refused: {checkpoints.path(4)}: {told}")
    assert resumed == f"resumed from {checkpoints.path(3)}"
    assert (again.step, again.digest()) == (3, whole)


OTHER = Settings("linear", "full", 7, lr=0.1, momentum=0.5, seed=1)


@pytest.mark.parametrize("name", vars(OTHER))
def test_any_setting_makes_another_run(tmp_path, name):
    """Each decides the parameters: none may differ after a resume."""
    Checkpoints(tmp_path, vars(Settings())).save(3, {})
    changed = vars(Settings()) | {name: vars(OTHER)[name]}
    assert changed != vars(Settings())
    with pytest.raises(ValueError, match=rf"another run \({name}: "):
        Checkpoints(tmp_path, changed).newest()


def test_a_lock_that_is_a_link_is_told_to_all_ranks(alone, tmp_path):
    (tmp_path / "lock").symlink_to("victim")
    settings = Settings("linear", batch_size=6)
    run = Run(settings, small(17), alone)
    told = "lock is a link to a file that is not the job's; delete the link"
    with pytest.raises(ValueError, match=told):
        resume(run, Checkpoints(tmp_path, vars(settings)))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_run_that_diverges_stops_before_it_saves(alone, tmp_path, rank):
    """The last checkpoint before that stays; other ranks stop as well."""
    ranks = replace(alone, rank=rank, hosts=["a", "b"])
    settings = Settings("lenet", batch_size=6, lr=1e30)
    checkpoints = Checkpoints(tmp_path, vars(settings), keep=1)
    for saves_to in (checkpoints, None):
        run = Run(settings, small(17), ranks)
        with pytest.raises(FloatingPointError, match="; begin again with a"):
            train_to(run, 9, saves_to, every=1)
        assert run.step > 1
        good = checkpoints.path(run.step - 1)
        assert list(tmp_path.glob("*.ckpt")) == [good] * (rank == 0)
    again = Run(settings, small(17), ranks)
    told = rf"\(step: {run.step}, state/model/\S+: \d+ of \d+ values are not"
    with pytest.raises(FloatingPointError, match=told):
        train_to(again, run.step, None, every=99)  # and at the end


def test_dropout_masks_of_two_ranks_differ(alone, monkeypatch):
    """In each step; and a rank's own differ from step to step."""
    drawn = []

    class Masked(nn.Sequential):
        def __init__(self, seed):
            super().__init__(nn.Flatten(), nn.Linear(784, 10))

        def forward(self, X):
            drawn.append(F.dropout(torch.ones(99)))
            return super().forward(X)

    def masks_of(rank):
        ranks = replace(alone, rank=rank, hosts=["a", "b"])
        run = Run(Settings("masked", batch_size=6), small(17), ranks)
        drawn.clear()  # of the rehearsal
        train_to(run, 2, None, every=9)
        return list(drawn)

    monkeypatch.setitem(run_module.MODELS, "masked", Masked)
    masks, others = masks_of(0), masks_of(1)
    assert not torch.equal(masks[0], others[0])
    assert not torch.equal(masks[1], others[1])
    assert not torch.equal(masks[0], masks[1])
    assert all(map(torch.equal, masks, masks_of(0)))


def test_a_folder_without_a_name(capsys):
    for name in ("", " "):
        with pytest.raises(SystemExit):
            main(["train", "--checkpoint", name])
        assert f"not a folder ({name!r})" in capsys.readouterr().err


def test_first_words_of_an_error():
    told = "[/a/b.cc:81] Timed out waiting 5000ms\nand more\n"
    assert brief(RuntimeError(told)) == "Timed out waiting 5000ms"
    assert brief(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (RuntimeError("[/a/gloo/pair.cc:538] Broken pipe"), True),
        (RuntimeError("Application timeout"), True),
        (RuntimeError("failed\nConnection reset by peer"), True),
        (dist.DistNetworkError("gone"), True),
        (RuntimeError("a rank ends with other parameters"), False),
        (KeyError("connection"), False),
    ],
)
def test_errors_that_come_from_others(error, wanted):
    assert is_of_others(error) == wanted


@pytest.mark.parametrize("given", ["0", "-1", "inf", "86401", "soon"])
def test_a_timeout_that_is_none(given, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--timeout", given])
    assert "--timeout: not a" in capsys.readouterr().err


@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_ends_otherwise_is_seen(alone, rank):
    run = Run(Settings("linear"), small(17), alone)
    run.ranks = replace(alone, hosts=["a", "b", "c"])
    for other in (1, 2):
        run.ranks.store.set(f"digest/{other}", run.digest())
    run.check_alike()
    run.ranks.store.set(f"digest/{rank}", "0" * 64)
    told = rf"\(rank: {rank}, sha256: 00000000…"
    with pytest.raises(RuntimeError, match=told):
        run.check_alike()


def test_a_digest_depends_on_each_parameter_and_buffer(alone, monkeypatch):
    monkeypatch.setitem(run_module.MODELS, "forgetful", forgetful)
    run = Run(Settings("forgetful", batch_size=6), small(17), alone)
    state = run.module.state_dict()
    assert "2.running_var" in state
    digests = {run.digest()}
    for value in state.values():
        value.view(-1)[-1] += 1
        digests.add(run.digest())
    assert len(digests) == 1 + len(state)


@contextmanager
def rolls_called(seconds):
    """Give what makes the roll calls of ranks, with some time to answer."""
    rolls = []

    def listen(rank, world_size, store):
        roll = RollCall(rank, world_size, store)
        rolls.append(roll)
        roll.start()
        return roll

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpbook.job.roll_call.ROLL_CALL_SECONDS", seconds)
        yield listen
    for roll in rolls:
        roll.end()
        assert not roll.is_alive()


@pytest.fixture
def listening():
    with rolls_called(seconds=2) as listen:
        yield listen


def told_lost(listening, callers, bystanders, begun):
    """Return what each caller says is lost, of three ranks."""
    store, hosts = dist.HashStore(), ["a", "a", "b"]
    rolls = {
        rank: listening(rank, 3, store) for rank in {*callers, *bystanders}
    }
    with ThreadPoolExecutor() as pool:
        ranks = [Ranks(r, CPU, hosts, store, rolls[r]) for r in callers]
        answers = pool.map(Ranks.lost, ranks)
        begun.wait()  # until all threads are there, which others may count
        found = list(answers)
    assert ranks[0].names([1, 2]) == "rank 1 on a, rank 2 on b"
    return found


# Who calls, who answers only, and what each caller has to say is lost.
LOST = {
    "who is silent": ([0], [], [[1, 2]]),
    "who is silent, to all that call": ([0, 2], [], [[1], [1]]),
    "not who answers, if one is silent": ([0], [1], [[2]]),
    "not who answers, to all that call": ([1, 2], [0], [[0], [0]]),
    "who goes on, if nobody is silent": ([0, 2], [1], [[1], [1]]),
    "nobody": ([0, 1, 2], [], [[], [], []]),
}


@pytest.fixture(scope="module")
def asked():
    """What the callers will say; all at once, for most of it is waiting."""
    pool = ThreadPoolExecutor(len(LOST))
    begun = threading.Barrier(len(LOST) + 1, timeout=1200)
    with rolls_called(seconds=8) as listen, pool:
        futures = {
            name: pool.submit(told_lost, listen, callers, bystanders, begun)
            for name, (callers, bystanders, _) in LOST.items()
        }
        begun.wait()
        yield futures


def test_who_calls_late_learns_what_the_others_did(listening):
    store = dist.HashStore()
    rolls = [listening(rank, 3, store) for rank in (0, 1)]
    assert rolls[0].lost() == {2}
    rolls[1].join()
    store.delete_key("roll/0 is here")
    assert rolls[1].lost() == {2}


class LateStore:
    """Rank 1 answers and stops when rank 0 has just looked for its answer."""

    def __init__(self):
        self.store = dist.HashStore()

    def clone(self):
        return self

    def set(self, key, value):
        self.store.set(key, value)

    def check(self, keys):
        found = self.store.check(keys)
        if keys == ["roll/1 is here"]:
            for key in ("roll/1 is here", "roll/1 stops"):
                self.store.set(key, "")
        return found


def test_who_stops_has_answered():
    with rolls_called(seconds=600) as listen:  # of which it needs none
        assert listen(0, 2, LateStore()).lost() == set()


def test_nobody_is_lost_while_the_machine_stands_still(monkeypatch):
    """The wall clock does not count, which goes on meanwhile."""
    hours = count(step=3600.0).__next__
    clock = SimpleNamespace(sleep=time.sleep, monotonic=hours)
    monkeypatch.setattr("dpbook.job.roll_call.time", clock)
    with rolls_called(seconds=600) as listen:
        assert listen(0, 2, LateStore()).lost() == set()


def test_who_has_noticed_the_end(listening, monkeypatch):
    monkeypatch.setattr("dpbook.job.roll_call.NOTICE_SECONDS", 0.2)
    store = dist.HashStore()
    rolls = [listening(rank, 4, store) for rank in range(3)]
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(rolls[1].lost)
        while 0 not in rolls[0].here:
            time.sleep(0.01)
        rolls[0].end()
        assert lost.result() == {3}
    assert [roll.unnoticed() for roll in rolls] == [set(), set(), {3}]


def test_who_is_waited_for_may_go_on(listening, monkeypatch):
    monkeypatch.setattr("dpbook.job.roll_call.NOTICE_SECONDS", 0.2)
    store = dist.HashStore()
    rolls = [listening(rank, 2, store) for rank in range(2)]
    assert rolls[0].lost() == {1}
    assert rolls[1].unnoticed() == set()


def test_who_has_lost_the_store_may_go_on(listening, monkeypatch):
    monkeypatch.setattr("dpbook.job.roll_call.NOTICE_SECONDS", 0.2)
    assert listening(0, 2, NoStore("set and check")).unnoticed() == set()


def test_nobody_calls_the_roll(listening, monkeypatch):
    monkeypatch.setattr("dpbook.job.roll_call.NOTICE_SECONDS", 0)
    store = dist.HashStore()
    roll = listening(0, 2, store)
    watch = threading.Thread(target=roll.unnoticed, daemon=True)
    watch.start()
    roll.join(1)
    assert roll.is_alive()
    assert watch.is_alive()
    assert not store.check(["roll/0 is here"])


class NoStore:
    """Refuses to write, or to read and write, or holds who does."""

    def __init__(self, refused):
        self.refused, self.released = refused, threading.Event()

    def clone(self):
        return self

    def check(self, keys):
        if self.refused == "hold":
            self.released.wait()
        if self.refused == "set and check":
            raise RuntimeError("Broken pipe")
        return False

    def set(self, key, value):
        raise RuntimeError("Broken pipe")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("refused", ["set", "set and check", "hold"])
def test_without_a_store_the_other_hosts_are_lost(refused):
    store = NoStore(refused)
    with rolls_called(seconds=0) as listen:
        roll = listen(2, 4, store)
        time.sleep(0.3)  # its thread reads
        for hosts, lost in ((["a", "b", "b", "c"], [0, 3]), (["a"] * 4, [0])):
            assert Ranks(2, CPU, hosts, store, roll).lost() == lost
        store.released.set()


# Several


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "batch_size", "num_steps"),
    [
        ("scrambled", 100, 4),
        ("linear", 9998, 4),  # of two examples, the last of three has none
    ],
)
def test_any_number_of_ranks(forker, tmp_path, model, batch_size, num_steps):
    states, told = [], []
    for world_size in (1, 2, 3):
        folder = tmp_path / str(world_size)
        told.append(
            forker.run(
                world_size, "--model", model, "--batch-size", batch_size,
                "--max-steps", num_steps, "--checkpoint", folder,
            )
        )  # fmt: skip
        checkpoints = Checkpoints(
            folder, vars(Settings(model, batch_size=batch_size))
        )
        states.append(unpack(checkpoints.newest().content)[1])
    assert [state["world_size"] for state in states] == [1, 2, 3]
    for other in states[1:]:
        for part in ("model", "optimizer"):
            torch.testing.assert_close(
                other[part], states[0][part], rtol=1e-4, atol=1e-6
            )
    for text in told:
        assert re.search(r"test accuracy 0\.\d{4} \(\d+/2000\)", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "times"), [(2, 1), weekly((2, 4)), weekly((3, 1))]
)
def test_killed_at_any_moment(forker, tmp_path, world_size, times):
    """And started again: the end is the same to the bit."""
    seed = random.randrange(1000)
    print(f"seed: {seed}")  # shown where the test fails
    moments = random.Random(seed)
    words = ["--model", "scrambled", "--batch-size", 500, "--max-steps", 20]
    words += ["--checkpoint-every", 1, "--checkpoint"]
    undisturbed = forker.run(world_size, *words, tmp_path / "whole")
    # After so many saves, wherever the job is then: each time is another one.
    for saves in moments.sample(range(1, 19), times):
        folder = tmp_path / str(saves)
        job = forker.start(world_size, *words, folder)
        job.until("saved", times=saves)
        time.sleep(moments.uniform(0, 0.05))
        victim = moments.randrange(world_size)
        job.kill([victim])
        job.kill(set(range(world_size)) - {victim})  # as torchrun does
        job.wait()
        told = forker.run(world_size, *words, folder)
        assert digest(told) == digest(undisturbed)
        assert "refused" not in told
        assert "resumed" in told


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_ctrl_c_says_how_to_go_on(forker, tmp_path, world_size):
    words = ["--model", "scrambled", "--batch-size", 500, "--max-steps"]
    saving = ["--checkpoint-every", 1, "--checkpoint", tmp_path]
    job = forker.start(world_size, *words, 9999, *saving)
    job.until("saved", times=3)
    job.kill(range(world_size), signal.SIGINT)  # as a terminal does
    # Another rank may notice first that rank 0 has ended.
    statuses = job.wait()
    assert statuses[0] == 130
    assert all(status in (130, 1) for status in statuses)
    last = job.told(0).splitlines()[-1]
    stopped = r"python -m dpbook: stopped by Ctrl-C after step \d+; the same "
    found = re.fullmatch(rf"{stopped}line again goes on from (.*)", last)
    assert found, last
    for rank in range(1, world_size):
        assert "Traceback" not in job.told(rank)
    step = int(re.search(r"step-(\d+)-", found[1])[1])
    told = forker.run(world_size, *words, step + 5, *saving)
    assert f"resumed from {found[1]}\n" in told


@pytest.mark.slow
def test_ctrl_c_says_that_nothing_was_saved(forker):
    job = forker.start(1, "--model", "scrambled", "--epochs", 999)
    job.until("steps of")
    time.sleep(1)
    job.kill([0], signal.SIGINT)
    assert job.wait() == [130]
    assert "nothing was saved; with --checkpoint FOLDER" in job.told(0)


NINE_STEPS = [*QUICK, "--max-steps", 9]


@pytest.fixture(scope="module")
def undisturbed(forker):
    """What a run of nine steps ends with, on one rank."""
    return digest(forker.run(1, *NINE_STEPS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end_at", "step"),
    [
        (("fsync", 7), 3),
        (("replace", 4), 3),
        (("fsync", 8), 4),
        # A save deletes what has its draft's name; from the fourth on, also
        # an old checkpoint: 1 | 2 | 3 | 4 5 | 6 7.
        (("unlink", 6), 4),
        (("unlink", 7), 5),
    ],
)
def test_killed_while_saving(forker, undisturbed, tmp_path, end_at, step):
    words = [*NINE_STEPS, "--checkpoint-every", 1, "--checkpoint", tmp_path]
    job = forker.start(1, *words, end_at=end_at)
    assert job.wait() == [-signal.SIGKILL]
    told = forker.run(1, *words)
    (found,) = re.findall(r"resumed from .*/step-(\d+)-", told)
    assert int(found) == step
    assert digest(told) == undisturbed


LONG = [*QUICK, "--epochs", 10**6, "--checkpoint-every", 5]


@pytest.fixture(scope="module")
def struck(forker, tmp_path_factory, asked):
    """Jobs that come to harm; at once, for most of their time is waiting.

    Those that have seconds to meet start when the others have ended or wait.
    """
    jobs = {}
    try:
        strike_all(forker, tmp_path_factory, jobs)
        yield jobs
    finally:
        for job in jobs.values():
            job.kill(range(len(job.ranks)))
            job.wait()


def strike_all(forker, tmp_path_factory, jobs):
    """Start the jobs, each under its name, and harm them."""
    for name, rank, how in (
        ("rank 0 is killed", 0, signal.SIGKILL),
        ("rank 2 is killed", 2, signal.SIGKILL),
        ("rank 1 is stopped", 1, signal.SIGSTOP),
    ):
        words = ["--timeout", 3 if how == signal.SIGSTOP else 300]
        words += ["--checkpoint", tmp_path_factory.mktemp("checkpoints")]
        jobs[name] = forker.start(3, *LONG, *words)
        jobs[name].until("step 20 of")
        jobs[name].strike(rank, how)
    jobs["buggy"] = forker.start(2, *LONG, "--model", "buggy")
    jobs["buggy"].wait([1])
    jobs["chain"] = forker.start(3, "--model", "chain", "--timeout", 40)
    jobs["chain"].wait([2])
    jobs["idle"] = forker.start(3, "--model", "idle", "--timeout", 3)
    jobs["deaf"] = forker.start(3, "--model", "deaf", "--timeout", 50)
    jobs["absent"] = forker.start(2, *LONG, "--timeout", 3)
    jobs["absent"].strike(1)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_is_named(struck, victim):
    job = struck[f"rank {victim} is killed"]
    codes = job.wait()
    others = {0, 1, 2} - {victim}
    assert job.seconds_until_told(others) < 200  # of 300
    assert codes == [-9 if r == victim else 1 for r in range(3)]
    host = socket.gethostname()
    for rank in others:
        *_, last = job.told(rank).splitlines()
        told = f"rank {rank} on {host} stops: no answer from rank {victim} on "
        assert last.startswith(f"python -m dpbook: {told}{host} (why: ")


@pytest.mark.slow
def test_who_waits_for_one_that_waits_is_not_lost(struck):
    job = struck["chain"]
    assert job.wait() == [1, 1, -9]
    for rank in (0, 1):
        *_, last = job.told(rank).splitlines()
        assert "no answer from rank 2 on " in last


@pytest.mark.slow
def test_a_rank_that_stops_is_named(struck):
    job = struck["rank 1 is stopped"]
    assert job.wait([0, 2]) == [1, 1]
    assert job.seconds_until_told([0, 2]) < 60  # without --timeout: over 64
    for rank in (0, 2):
        assert re.search(
            rf"rank {rank} on \S+ stops: no answer from rank 1 on \S+ \(why: ",
            job.told(rank),
        )


@pytest.mark.slow
def test_who_lives_and_takes_no_part_is_named(struck):
    job = struck["idle"]
    assert job.wait([0, 2]) == [1, 1]
    for rank in (0, 2):
        *_, last = job.told(rank).splitlines()
        assert re.search(r"no answer from rank 1 on \S+ \(why", last)


@pytest.mark.slow
def test_who_notices_nothing_ends_with_the_others(struck):
    job = struck["deaf"]
    assert job.wait() == [1, 1, -9]
    *_, last = job.told(1).splitlines()
    assert "no answer from rank 2 on " in last
    assert last.endswith("(why: others have stopped)")


@pytest.mark.parametrize("name", LOST)
def test_lost_is(asked, name):
    *_, lost = LOST[name]
    assert asked[name].result() == lost


@pytest.mark.slow
def test_a_rank_that_never_comes(struck):
    job = struck["absent"]
    assert job.wait() == [1, -9]
    (line,) = [line for line in job.told(0).splitlines() if "dpbook" in line]
    assert "the ranks could not connect (rank: 0 of 2 on " in line
    assert "at: 127.0.0.1:" in line
    assert "timeout: 3 s" in line


@pytest.mark.slow
def test_damaged_ones_are_refused_on_all_ranks(forker, tmp_path):
    words = [*QUICK, "--checkpoint-every", 2, "--checkpoint", tmp_path]
    forker.run(2, *words, "--max-steps", 6)
    whole = forker.run(1, *words[:-2], "--max-steps", 8)
    *_, older, torn = sorted(tmp_path.glob("*.ckpt"))
    os.truncate(torn, 1000)
    told = forker.run(2, *words, "--max-steps", 8)
    assert f"refused: {torn}: damaged checkpoint (why: " in told
    assert f"resumed from {older}\n" in told
    assert digest(told) == digest(forker.run(2, *words, "--max-steps", 8))
    assert digest(told) != digest(whole)  # on another number of ranks
    told = forker.run(3, *words, "--max-steps", 9)
    assert "another number of ranks (then: 2, now: 3): equal to round" in told


@pytest.mark.slow
def test_all_ranks_begin_from_what_rank_0_reads(forker, tmp_path):
    """On another host, the folder may not be there, or hold other files."""
    words = [*QUICK, "--timeout", 20, "--checkpoint", tmp_path / "{rank}"]
    undisturbed = forker.run(2, *QUICK, "--max-steps", 8)
    forker.run(2, *words, "--max-steps", 6)
    assert not (tmp_path / "1").exists()
    Checkpoints(tmp_path / "1", {}).save(7, {})
    told = forker.run(2, *words, "--max-steps", 8)
    assert "resumed from" in told
    assert digest(told) == digest(undisturbed)
    assert len([*(tmp_path / "1").iterdir()]) == 1


@pytest.mark.slow
def test_what_all_ranks_classify_is_added_up(forker, tmp_path):
    words = [*QUICK, "--max-steps", 6, "--checkpoint", tmp_path]
    told = forker.run(2, *words)
    (path,) = tmp_path.glob("*.ckpt")
    net = run_module.MODELS["linear"](0)
    net.load_state_dict(unpack(path.read_bytes())[1]["model"])
    images, labels = load_fashion_mnist()[1]
    correct = int((net(images).argmax(dim=1) == labels).sum())
    assert f"({correct}/{len(labels)})\n" in told


@pytest.fixture(scope="module")
def six_steps(forker, tmp_path_factory):
    """The words of a run that has taken six steps, and its folder."""
    folder = tmp_path_factory.mktemp("six steps")
    words = [*QUICK, "--max-steps", 6, "--checkpoint", folder]
    forker.run(1, *words)
    return words, folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["--lr", 0.3], "another run (lr: 0.05 there, 0.3 here)"),
        (["--model", "lenet"], "another run (model: linear there, lenet here"),
        (["--max-steps", 3], "(steps taken: 6, asked for: 3)"),
    ],
)
def test_what_cannot_be_taken_up(forker, six_steps, changed, told):
    words, folder = six_steps
    before = {p.name: p.read_bytes() for p in folder.glob("*.ckpt")}
    assert before
    job = forker.start(2, *words, *changed)
    assert job.wait([0]) == [2]
    job.kill([1], signal.SIGTERM)  # as torchrun does
    job.wait([1])
    assert told in job.told(0)
    assert "Traceback" not in job.told(0) + job.told(1)
    after = {p.name: p.read_bytes() for p in folder.glob("*.ckpt")}
    assert after == before


@pytest.mark.slow
def test_a_second_job_on_a_folder(forker, tmp_path):
    """It is refused, and the first goes on, and can be resumed if killed."""
    words = [*LONG, "--checkpoint", tmp_path]
    first = forker.start(2, *words)
    try:
        first.until("step 20 of")
        second = forker.start(2, *words)
        assert second.wait([0]) == [2]
        second.kill([1], signal.SIGTERM)  # as torchrun does
        second.wait([1])
        saved = first.told(0).count("saved")
        first.until(f"step {5 * saved + 20} of")
    finally:
        first.kill([0, 1])
        first.wait()
    (line,) = [line for line in second.told(0).splitlines() if "used" in line]
    assert line.startswith("python -m dpbook: another job uses this folder")
    holder = f"process {first.ranks[0].pid} on {socket.gethostname()}"
    assert f"(folder: {tmp_path}, used by: {holder})" in line
    assert "Traceback" not in second.told(0) + second.told(1)
    third = forker.start(2, *words)
    try:
        third.until("resumed from")
    finally:
        third.kill([0, 1])
        third.wait()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_disk_that_fails(forker, tmp_path, world_size):
    """It is its rank's own fault, told in a line; the other names the rank."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "a"
    job = forker.start(world_size, *QUICK, "--checkpoint", folder)
    assert job.wait() == [1] * world_size
    host = socket.gethostname()
    *_, last = job.told(0).splitlines()
    assert last == (
        f"python -m dpbook: rank 0 on {host} stops: a file cannot be read or "
        f"written (why: Not a directory, file: {folder})"
    )
    assert "Traceback" not in "".join(map(job.told, range(world_size)))
    for rank in range(1, world_size):
        assert f"no answer from rank 0 on {host} (why" in job.told(rank)


@pytest.mark.slow
def test_a_run_that_diverges_is_told_by_each_rank(forker, tmp_path):
    """In a line, without a traceback; none blames another."""
    words = ["--model", "lenet", "--lr", 1e30, "--checkpoint-every", 5]
    job = forker.start(2, *words, "--checkpoint", tmp_path)
    assert job.wait() == [1, 1]
    host = socket.gethostname()
    for rank in range(2):
        *_, last = job.told(rank).splitlines()
        told = f"python -m dpbook: rank {rank} on {host} stops: the run has "
        begins = last.startswith(f"{told}diverged (step: 5, state/model/")
        assert begins, job.told(rank)
        assert "Traceback" not in job.told(rank)
    assert list(tmp_path.glob("*.ckpt")) == []


@pytest.mark.slow
def test_a_rank_with_a_bug(struck):
    """It shows its traceback, and blames no other."""
    job = struck["buggy"]
    assert job.wait() == [1, 1]
    assert "Traceback" in job.told(1)
    assert job.told(1).rstrip().endswith("KeyError: 'a bug'")
    assert "no answer from" not in job.told(1)
    assert "no answer from rank 1 on" in job.told(0)


def torchrun(folder, *arguments):
    """Start two ranks as a reader does; torchrun leaves a temporary folder."""
    words = ["-m", "torch.distributed.run", "--nproc-per-node", 2]
    words += ["--standalone", "-m", "dpbook", "train", *arguments]
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def read_until(process, words):
    """Read what a process prints until a line that begins so."""
    assert any(line.startswith(words) for line in process.stdout), words


@pytest.mark.weekly
def test_by_torchrun(forker, tmp_path):
    """All ranks are killed, as with torchrun itself, and then one is."""
    words = [*LONG, "--checkpoint", tmp_path]
    begun = forker.start(2, *words)
    begun.until("step 20 of")
    begun.kill([0, 1])
    assert begun.wait() == [-9, -9]

    resumed = torchrun(tmp_path, *words)
    read_until(resumed, "resumed from")
    read_until(resumed, "step ")
    os.kill(children(resumed.pid)[-1], signal.SIGKILL)
    rest, _ = resumed.communicate()
    assert resumed.returncode != 0
    assert "Signal 9 (SIGKILL) received by PID" in rest
    assert "sha256" not in rest

    taken = max(int(path.name[5:13]) for path in tmp_path.glob("*.ckpt"))
    goal = [*QUICK, "--max-steps", taken + 7]
    told = forker.run(2, *goal, "--checkpoint", tmp_path)
    assert f"resumed from {tmp_path}/step-{taken:08d}-" in told
    assert digest(told) == digest(forker.run(2, *goal))
