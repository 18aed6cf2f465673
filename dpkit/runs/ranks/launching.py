"""Start ranks, and take what they return."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from dpkit.arguments import check_function
from dpkit.collectives import check_algorithm
from dpkit.library import LIBRARY
from dpkit.processes import ending_children
from dpkit.runs.ranks.alike import AlikeGroup, AlikeWorld, tell_of_one
from dpkit.runs.ranks.alike_checks import check_machine
from dpkit.runs.ranks.dtensor import draw_on_shards
from dpkit.runs.ranks.flat_parameters import flatten_by_ranks
from dpkit.runs.ranks.group import SimGroup
from dpkit.runs.ranks.refused import refuse_in_ranks
from dpkit.runs.ranks.saving import save_by_ranks
from dpkit.runs.ranks.scheduler import Scheduler
from dpkit.runs.ranks.store import RankStore
from dpkit.runs.ranks.thread_state import Registry, isolate_threads
from dpkit.runs.ranks.watching import TurnWatch
from dpkit.runs.ranks.world import World
from dpkit.sim.devices import set_device, simulation
from dpkit.sim.memory import collect_garbage
from dpkit.sim.streams import BACKEND, become_rank
from dpkit.sim.streams import thread as rank_thread
from dpkit.sim.tracing import watching_host

MESSAGES_UP_TO = 8  # ranks, unless an algorithm is chosen
LEFT_AFTER = 2.0  # seconds without work of a rank that was asked to end


def run_ranks(
    fn: Callable[..., Any],
    size: int,
    *,
    args: Any,
    algorithm: str | None,
    idle_limit: float,
    alike: bool = False,
) -> list[Any]:
    """Start the ranks of a launch, and return their values.

    Args:
        fn: Each rank calls it.
        size: The number of ranks.
        args: The arguments of ``fn``, of which each rank gets a copy.
        algorithm: How collectives are sent. None: by the number of ranks.
        idle_limit: The seconds after which an idle rank ends the launch.
        alike: Whether one rank stands for all.

    Raises:
        RuntimeError: ranks run already; or as :func:`dpkit.sim.launch` says.
        TypeError: to call ``fn`` would run nothing.
        ValueError: there is no such algorithm.
    """
    if isinstance(c10d._world, Registry) or rank_thread.is_process:
        raise RuntimeError("ranks are running already; launch them in turn")
    check_function("fn", fn)
    _check_runs(fn)
    if algorithm is not None:
        check_algorithm(algorithm)
    if alike:
        check_machine()
    collect_garbage(simulation.memory)  # a new process has none
    algorithm = algorithm or ("ring" if size <= MESSAGES_UP_TO else LIBRARY)
    with ExitStack() as stack:
        isolate_threads(stack)
        draw_on_shards(stack)
        save_by_ranks(stack)
        flatten_by_ranks(stack)
        refuse_in_ranks(stack)
        if alike:
            tell_of_one(stack, size)
        world = (AlikeWorld if alike else World)(size, algorithm)
        make_group: Any = AlikeGroup if alike else SimGroup
        running = range(world.scheduler.count)
        values: list[Any] = [copy.deepcopy(args) for _ in running]
        store = RankStore(world.scheduler, size // len(running))

        def program(rank: int) -> None:
            become_rank(rank, lambda options: make_group(options, world, rank))
            set_device(rank)
            dist.init_process_group(
                BACKEND, rank=rank, world_size=size, store=store
            )
            try:
                with watching_host(), ending_children():
                    values[rank] = fn(*values[rank])
            finally:
                # Else PyTorch has the groups of another launch by now.
                is_here = rank not in world.scheduler.left_behind
                if is_here and dist.is_initialized():
                    dist.destroy_process_group()

        with _freeing(world, values):
            _take_turns(world.scheduler, program, idle_limit)
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
    scheduler: Scheduler, program: Callable[[int], None], idle_limit: float
) -> None:
    """Run all ranks to their end, each in its thread.

    Raises:
        KeyboardInterrupt: Ctrl-C has ended the ranks.
        RuntimeError: a rank has been idle for as long as the limit.
    """
    threads = [
        Thread(
            None, scheduler.run, f"rank {rank}", (rank, program), daemon=True
        )
        for rank in range(scheduler.count)
    ]
    for thread in threads:
        thread.start()
    scheduler.begin()
    watch = TurnWatch(scheduler, program.__code__, idle_limit)
    # Not by join: Ctrl-C in it would make Python 3.11 take the thread it waits
    # for as ended (github.com/python/cpython/issues/90882).
    try:
        # Without a limit, Ctrl-C just before it would be lost.
        while not scheduler.ended.wait(0.1):
            watch.look()
    except BaseException as error:  # Ctrl-C, or the limit
        watch = TurnWatch(scheduler, program.__code__)  # from now on
        while not scheduler.ended.is_set():
            with suppress(KeyboardInterrupt):  # another one
                _end(scheduler, watch, error)
        raise
    finally:
        for rank, thread in enumerate(threads):
            if rank not in scheduler.left_behind:
                thread.join()


def _end(scheduler: Scheduler, watch: TurnWatch, error: BaseException) -> None:
    """End all ranks; leave behind those that do not learn of it.

    A thread of Python that waits in C, such as for a lock, learns nothing.
    """
    while not scheduler.ended.wait(0.1):
        scheduler.stop()
        if watch.seconds() > LEFT_AFTER:
            rank = scheduler.running
            place = watch.place()
            scheduler.leave_behind(watch.number)
            error.add_note(f"rank {rank} does not end: it waits in {place}")


def _check_runs(fn: Callable[..., Any]) -> None:
    """Raise TypeError for a function that runs nothing when it is called."""
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
