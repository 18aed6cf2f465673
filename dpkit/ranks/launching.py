"""Start ranks, and take what they return."""

import copy
import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d as c10d

from dpkit import sim
from dpkit.library import LIBRARY
from dpkit.ranks.group import SimGroup
from dpkit.ranks.turns import Ended
from dpkit.ranks.world import Registry, World
from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import set_device
from dpkit.sim.sending import BACKEND, become_rank
from dpkit.sim.tracing import tracing

MESSAGES_UP_TO = 8  # ranks, unless an algorithm is chosen


def run_ranks(
    fn: Callable[..., Any], size: int, args: Any, algorithm: str | None
) -> list[Any]:
    """Do what :func:`dpkit.sim.launch` says."""
    _check(size)
    if algorithm is None:
        algorithm = "ring" if size <= MESSAGES_UP_TO else LIBRARY
    with ExitStack() as stack:
        if simulation.settings["hosts"] == "one":
            stack.enter_context(sim.machine(hosts="per_device"))
        stack.enter_context(_isolated())
        world = World(size, algorithm)
        copies = [copy.deepcopy(args) for _ in range(size)]
        values: list[Any] = [None] * size
        store = dist.HashStore()

        def program(rank: int) -> None:
            become_rank(lambda options: SimGroup(options, world, rank))
            set_device(rank)
            dist.init_process_group(
                BACKEND, rank=rank, world_size=size, store=store
            )
            try:
                values[rank] = fn(*copies[rank])
            finally:
                dist.destroy_process_group()

        _take_turns(world, program)
    world.turns.check()
    return values


def _check(size: int) -> None:
    """Refuse what cannot be launched here, and say what can."""
    if isinstance(c10d._world, Registry):
        raise RuntimeError("ranks are running already; launch them in turn")
    if simulation.settings["hosts"] == "one" and tracing():
        raise RuntimeError(
            "each rank needs a host of its own, and a trace runs on a machine "
            "with one (hosts: 'one'); enter "
            'dpkit.sim.machine(hosts="per_device") before the trace'
        )
    count = simulation.settings["num_devices"]
    if size > count:
        raise ValueError(
            f"each rank needs a simulated device (world_size: {size}, devices:"
            f" {count}); dpkit.sim.machine(num_devices={size}) has as many"
        )


@contextmanager
def _isolated() -> Iterator[None]:
    """Give each thread its own registries; leave the caller's as they are."""
    isolate = vars(_distributed_c10d)["_set_thread_isolation_mode"]
    before, random, hook = c10d._world, torch.get_rng_state(), sys.excepthook
    registry: Any = Registry()
    c10d._world = registry
    # DDP has no timer for simulated devices, and would warn on the terminal.
    ddp: Any = dist.Logger
    set_stats = ddp.set_runtime_stats_and_log
    ddp.set_runtime_stats_and_log = lambda self: None
    isolate(True)
    try:
        yield
    finally:
        isolate(False)
        ddp.set_runtime_stats_and_log = set_stats
        c10d._world = before
        torch.set_rng_state(random)
        sys.excepthook = hook  # each group puts its rank before errors


def _take_turns(world: World, program: Callable[[int], None]) -> None:
    """Run all ranks to their end."""
    turns = world.turns
    threads = [
        Thread(target=turns.run, args=(r, program), name=f"rank {r}")
        for r in range(world.size)
    ]
    for thread in threads:
        thread.daemon = True
        thread.start()
    turns.begin()
    try:
        _join(threads)
    except BaseException:  # Ctrl-C
        turns.end()
        # Raised in the thread when it comes to its next line of Python.
        number = ctypes.c_ulong(threads[turns.running].ident or 0)
        end = ctypes.py_object(Ended)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, end)
        _join(threads)
        raise


def _join(threads: list[Thread]) -> None:
    for thread in threads:
        thread.join()
