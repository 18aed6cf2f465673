"""Start ranks, and take what they return."""

import copy
import sys
from collections.abc import Callable
from contextlib import ExitStack
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from dpkit import sim
from dpkit.library import LIBRARY
from dpkit.ranks.group import SimGroup
from dpkit.ranks.turns import Ended, Turns
from dpkit.ranks.world import Registry, World
from dpkit.sim.backward import raise_outside
from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import set_device
from dpkit.sim.patching import replaced
from dpkit.sim.sending import BACKEND, become_rank

compiled: Any = torch._C._distributed_c10d
MESSAGES_UP_TO = 8  # ranks, unless an algorithm is chosen


def run_ranks(
    fn: Callable[..., Any], size: int, args: Any, algorithm: str | None
) -> list[Any]:
    """Do what :func:`dpkit.sim.launch` says."""
    if isinstance(c10d._world, Registry):
        raise RuntimeError("ranks are running already; launch them in turn")
    algorithm = algorithm or ("ring" if size <= MESSAGES_UP_TO else LIBRARY)
    with ExitStack() as stack:
        _isolate(stack)
        world = World(size, algorithm)
        values: list[Any] = [copy.deepcopy(args) for _ in range(size)]
        store = compiled.HashStore()

        def program(rank: int) -> None:
            become_rank(lambda options: SimGroup(options, world, rank))
            set_device(rank)
            dist.init_process_group(
                BACKEND, rank=rank, world_size=size, store=store
            )
            try:
                values[rank] = fn(*values[rank])
            finally:
                dist.destroy_process_group()

        _take_turns(world.turns, program)
    world.close()
    return values


def _isolate(stack: ExitStack) -> None:
    """Give each thread its own host and registries, up to the stack's end."""
    if simulation.settings["hosts"] == "one":
        stack.enter_context(sim.machine(hosts="per_device"))
    changes: list[tuple[Any, str, Any]] = [
        (c10d, "_world", Registry()),
        # Each group puts its rank before errors, also after a launch.
        (sys, "excepthook", sys.excepthook),
        # DDP has no timer for simulated devices, and would warn.
        (compiled.Logger, "set_runtime_stats_and_log", lambda logger: None),
    ]
    for owner, name, value in changes:
        stack.callback(replaced(owner, name, value).apply())
    stack.callback(torch.set_rng_state, torch.get_rng_state())
    compiled._set_thread_isolation_mode(True)
    stack.callback(compiled._set_thread_isolation_mode, False)


def _take_turns(turns: Turns, program: Callable[[int], None]) -> None:
    """Run all ranks to their end."""
    threads = [
        Thread(None, turns.run, f"rank {rank}", (rank, program), daemon=True)
        for rank in range(turns.count)
    ]
    for thread in threads:
        thread.start()
    turns.begin()
    # Not by join: Ctrl-C in it would make Python 3.11 take the thread it waits
    # for as ended (github.com/python/cpython/issues/90882).
    try:
        turns.ended.wait()
    except BaseException:  # Ctrl-C
        turns.stuck = turns.stuck or "ended from outside"
        while not turns.ended.wait(0.1):
            raise_outside(threads[turns.running], Ended)
        raise
    finally:
        for thread in threads:
            thread.join()
