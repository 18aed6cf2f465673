"""A failed launch leaves nothing in memory, however it fails.

Rank 1 fails in the first step of an engine of PyTorch: at a place, in a way.
What the other ranks have then given to collectives, and the graphs that
backward has not consumed, have to be freed.
"""

import _thread
import gc
import sys
import threading
import time
from collections import Counter
from itertools import product
from traceback import walk_tb

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.nn.modules.module import register_module_forward_hook

import dpkit
from dpkit.runs.ranks import sending
from dpkit.runs.ranks.group import SimGroup
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.memory.garbage import collect_garbage
from tests.runs.engines_on_ranks import ENGINES
from tests.runs.pipelines_on_ranks import pipeline
from tests.weekly import few_of

RANKS = 2
PROGRAMS = {name: ENGINES[name] for name in ("ddp", "fsdp", "tensor_parallel")}
PROGRAMS["pipeline"] = lambda: pipeline("1F1B")
# Place -> which call of rank 1 fails there.
PLACES = {"collective": 8, "forward": 11, "backward": 5}


class StayAwayError(Exception):
    """Ends the program of rank 1, as if it had fewer batches."""


def be_interrupted():
    _thread.interrupt_main()  # what Ctrl-C does
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        torch.ones(1, device="sim")


def raise_error(kind):
    raise kind("planted")


WAYS = {
    "raises": lambda: raise_error(ValueError),
    "runs out of memory": lambda: torch.empty(2**50, device="sim"),
    "stays away": lambda: raise_error(StayAwayError),
    "is interrupted": be_interrupted,
}


@pytest.fixture
def alive():
    """Give a function: on which devices there are new tensors."""
    collect_garbage(simulation.memory)
    before = [*simulation.memory.live]

    def tell(collect=True):
        if collect:
            collect_garbage(simulation.memory)
        live = enumerate(simulation.memory.live)
        return {index for index, size in live if size > before[index]}

    return tell


def failing(program, place, way, monkeypatch):
    """Return a program in which rank 1 fails at a place, in a way."""
    calls, plain_call = Counter(), SimGroup._call

    def call(where):
        if dist.get_rank() == 1:
            calls[where] += 1
            if where == place and calls[where] == PLACES[place]:
                WAYS[way]()

    def watched(group, *args, **kwargs):
        call("collective")
        return plain_call(group, *args, **kwargs)

    def watch_module(module, args, out):
        call("forward")
        if isinstance(out, torch.Tensor) and out.requires_grad:
            out.register_hook(lambda gradient: call("backward"))

    def run():
        handle = register_module_forward_hook(watch_module)
        try:
            program()
        except StayAwayError:
            pass
        finally:
            handle.remove()

    monkeypatch.setattr(SimGroup, "_call", watched)
    return run, calls


CASES = list(product(PROGRAMS, PLACES, WAYS))


@pytest.mark.parametrize(
    ("name", "place", "way"),
    few_of(CASES, CASES[::5]),  # each engine, each place, each way
)
def test_an_engine_that_fails_leaves_nothing(
    name, place, way, monkeypatch, alive
):
    run, calls = failing(PROGRAMS[name], place, way, monkeypatch)
    with pytest.raises((RuntimeError, KeyboardInterrupt)) as caught:
        dpkit.sim.launch(run, RANKS)
    assert calls[place] >= PLACES[place]
    # The error has the variables of the rank that failed, and no others.
    assert alive(collect=False) <= {1}
    del caught
    assert not alive()


# -- a group that is kept: DTensor caches meshes, and a mesh has its group


def send_together(groups):
    """Rank 0 has sent, and joins that with a barrier when rank 1 fails."""
    groups.append(dist.group.WORLD)
    x = torch.ones(100, device="sim")
    if dist.get_rank() == 1:
        dist.recv(x, 0)
    with _coalescing_manager(device=x.device, async_ops=True):
        dist.isend(x, 1)
        dist.barrier()


def test_an_operation_that_cannot_be_sent_leaves_nothing(monkeypatch, alive):
    def broken(*args, **kwargs):
        raise ValueError("planted")

    groups = []
    monkeypatch.setitem(sending.SENDERS, "message", broken)
    with pytest.raises(RuntimeError, match=r"rank 1 failed .*planted"):
        dpkit.sim.launch(lambda: send_together(groups), 2)
    assert not alive()
    assert len(groups) == 2


def leave_an_operation(groups):
    groups.append(dist.group.WORLD)
    if dist.get_rank() == 0:
        dist.isend(torch.ones(100, device="sim"), 1)


def test_an_operation_that_others_do_not_join_leaves_nothing(alive):
    groups = []
    with pytest.raises(RuntimeError, match="a rank left out message 0 → 1"):
        dpkit.sim.launch(lambda: leave_an_operation(groups), 2)
    assert not alive()
    assert len(groups) == 2


def leave_a_hook(groups):
    groups.append(dist.group.WORLD)
    x = torch.ones(100, device="sim")
    register_module_forward_hook(lambda *_: x.sum())


def test_a_hook_that_a_rank_leaves_is_freed(alive):
    groups = []
    dpkit.sim.launch(lambda: leave_a_hook(groups), 2)
    assert not alive()
    assert len(groups) == 2


# -- what is left from before a launch


@pytest.fixture
def no_own_collection():
    """Keep Python from collecting garbage by itself."""
    gc.disable()
    yield
    gc.enable()


def test_garbage_from_before_is_freed(alive, no_own_collection):
    cycle = [torch.ones(100, device=dpkit.devices(2, "sim")[1])]
    cycle.append(cycle)
    del cycle
    assert alive(collect=False) == {1}
    assert dpkit.sim.launch(torch.sim.memory_allocated, 2) == [0, 0]


# -- what the error of a launch keeps


def return_or_fail():
    if dist.get_rank() == 1:
        raise ValueError
    return torch.ones(100, device="sim")


def test_what_other_ranks_have_returned_is_freed(alive):
    with pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(return_or_fail, 3)
    assert not alive(collect=False)
    del caught


def test_the_error_itself_is_freed_without_collecting(alive):
    with pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(fail_with_tensors, 2)
    assert alive(collect=False)
    del caught
    assert not alive(collect=False)


# -- a thread that cannot be ended


def wait_for(lock):
    x = torch.ones(100, device="sim")
    if dist.get_rank() == 1:
        _thread.interrupt_main()
        lock.acquire()
    dist.all_reduce(x)


@pytest.mark.filterwarnings("ignore:rank 1 has done nothing")
def test_a_rank_that_is_left_behind_is_freed_when_it_wakes(alive):
    lock = threading.Lock()
    with lock, pytest.raises(KeyboardInterrupt):
        dpkit.sim.launch(lambda: wait_for(lock), 2)
    for thread in threading.enumerate():
        if thread.name == "rank 1":
            thread.join()
    assert not alive()


# -- the error that a notebook has shown


def fail_with_tensors():
    x = torch.ones(100, device="sim")
    raise ValueError(x.shape)


def test_an_error_that_was_shown_keeps_nothing_from_a_change(
    monkeypatch, alive
):
    with pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(fail_with_tensors, 2)
    for frame, _ in walk_tb(caught.value.__cause__.__traceback__):
        assert frame.f_locals  # as IPython looks at them, to show the error
    monkeypatch.setattr(sys, "last_value", caught.value, raising=False)
    monkeypatch.setattr(sys, "last_exc", caught.value, raising=False)
    assert alive()
    with dpkit.sim.machine(memory_bytes=300):
        assert not alive(collect=False)


def test_a_change_that_tensors_outlast_keeps_the_error(monkeypatch, alive):
    with pytest.raises(RuntimeError) as caught:
        dpkit.sim.launch(fail_with_tensors, 2)
    monkeypatch.setattr(sys, "last_value", caught.value, raising=False)
    with dpkit.sim.machine(accelerator="h100"):
        assert alive(collect=False)


def resume():
    x = torch.ones(100, device="sim:0")
    try:
        yield x
    except ValueError:
        yield x  # it has caught the error, and goes on
    yield x + 1


def test_a_generator_that_goes_on_keeps_its_variables(monkeypatch):
    steps = resume()
    next(steps)
    error = ValueError("planted")
    steps.throw(error)
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    smaller = dpkit.sim.machine(memory_bytes=300)
    with pytest.raises(RuntimeError, match="live on simulated"), smaller:
        pass
    assert next(steps).sum().item() == 200


def fail_and_wait_for(lock):
    x = torch.ones(100, device="sim")
    if dist.get_rank() == 1:
        try:
            raise ValueError(x.shape)
        except ValueError:
            _thread.interrupt_main()
            lock.acquire()
            dist.barrier()
    dist.all_reduce(x)


@pytest.mark.filterwarnings("ignore:rank 1 has done nothing")
def test_an_error_before_a_rank_was_left_behind_is_freed(alive):
    lock, groups = threading.Lock(), []

    def program():
        groups.append(dist.group.WORLD)
        fail_and_wait_for(lock)

    with lock, pytest.raises(KeyboardInterrupt):
        dpkit.sim.launch(program, 2)
    for thread in threading.enumerate():
        if thread.name == "rank 1":
            thread.join()
    assert not alive()
    assert len(groups) == 2
