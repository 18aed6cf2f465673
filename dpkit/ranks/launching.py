"""Start ranks, and take what they return."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from dpkit.library import LIBRARY
from dpkit.ranks.group import SimGroup
from dpkit.ranks.refused import refuse_in_ranks
from dpkit.ranks.saving import save_by_ranks
from dpkit.ranks.shards import compute_on_shards
from dpkit.ranks.store import RankStore
from dpkit.ranks.turns import Turns
from dpkit.ranks.watching import TurnWatch
from dpkit.ranks.world import World
from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import set_device
from dpkit.sim.garbage import collect_garbage
from dpkit.sim.needed import Registry, isolate_threads
from dpkit.sim.sending import BACKEND, become_rank
from dpkit.sim.tracing import watching_host

MESSAGES_UP_TO = 8  # ranks, unless an algorithm is chosen
LEFT_AFTER = 2.0  # seconds without work of a rank that was told to end


def run_ranks(
    fn: Callable[..., Any],
    size: int,
    args: Any,
    algorithm: str | None,
    idle_limit: float,
) -> list[Any]:
    """Do what :func:`dpkit.sim.launch` says."""
    if isinstance(c10d._world, Registry):
        raise RuntimeError("ranks are running already; launch them in turn")
    _check_function(fn)
    collect_garbage(simulation.memory)  # a new process has none
    algorithm = algorithm or ("ring" if size <= MESSAGES_UP_TO else LIBRARY)
    with ExitStack() as stack:
        isolate_threads(stack)
        compute_on_shards(stack)
        save_by_ranks(stack)
        refuse_in_ranks(stack)
        world = World(size, algorithm)
        values: list[Any] = [copy.deepcopy(args) for _ in range(size)]
        store = RankStore(world.turns)

        def program(rank: int) -> None:
            become_rank(rank, lambda options: SimGroup(options, world, rank))
            set_device(rank)
            dist.init_process_group(
                BACKEND, rank=rank, world_size=size, store=store
            )
            try:
                with watching_host():
                    values[rank] = fn(*values[rank])
            finally:
                # Else PyTorch has the groups of another launch by now.
                is_here = rank not in world.turns.left_behind
                if is_here and dist.is_initialized():
                    dist.destroy_process_group()

        with _freeing(world, values):
            _take_turns(world.turns, program, idle_limit)
            world.check()
    return values


@contextmanager
def _freeing(world: World, values: list[Any]) -> Iterator[None]:
    """Free what ranks leave in memory, as the end of a process would.

    After a failure that is everything, except for what the error itself keeps
    with its traceback: the variables of the rank that has failed.
    """
    try:
        yield
    except BaseException:
        values.clear()
        world.free()
        collect_garbage(simulation.memory)
        raise
    world.free()


def _take_turns(
    turns: Turns, program: Callable[[int], None], idle_limit: float
) -> None:
    """Run all ranks to their end."""
    threads = [
        Thread(None, turns.run, f"rank {rank}", (rank, program), daemon=True)
        for rank in range(turns.count)
    ]
    for thread in threads:
        thread.start()
    turns.begin()
    watch = TurnWatch(turns, program.__code__, idle_limit)
    # Not by join: Ctrl-C in it would make Python 3.11 take the thread it waits
    # for as ended (github.com/python/cpython/issues/90882).
    try:
        # Without a limit, Ctrl-C just before it would be lost.
        while not turns.ended.wait(0.1):
            watch.look()
    except BaseException as error:  # Ctrl-C, or the limit
        watch = TurnWatch(turns, program.__code__)  # from now on
        while not turns.ended.is_set():
            with suppress(KeyboardInterrupt):  # another one
                _end(turns, watch, error)
        raise
    finally:
        for rank, thread in enumerate(threads):
            if rank not in turns.left_behind:
                thread.join()


def _end(turns: Turns, watch: TurnWatch, error: BaseException) -> None:
    """End all ranks; leave behind those that do not hear of it.

    A thread of Python that waits in C, such as for a lock, hears nothing.
    """
    while not turns.ended.wait(0.1):
        turns.stop()
        if watch.seconds() > LEFT_AFTER:
            rank, place = turns.running, watch.place()
            turns.leave_behind(watch.number)
            error.add_note(f"rank {rank} does not end: it waits in {place}")


def _check_function(fn: Callable[..., Any]) -> None:
    """Refuse what runs nothing when it is called."""
    kinds = {
        "a coroutine": inspect.iscoroutinefunction,
        "a generator": inspect.isgeneratorfunction,
        "an asynchronous generator": inspect.isasyncgenfunction,
    }
    for kind, is_kind in kinds.items():
        if is_kind(fn):
            raise TypeError(
                f"a rank calls a function, and this returns {kind}, of which "
                f"nothing has run (fn: {getattr(fn, '__qualname__', fn)})"
            )
