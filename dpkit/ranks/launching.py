"""Start ranks, and take what they return."""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from dpkit.library import LIBRARY
from dpkit.ranks.group import SimGroup
from dpkit.ranks.shards import compute_on_shards
from dpkit.ranks.turns import Turns
from dpkit.ranks.world import World
from dpkit.sim.device_names import set_device
from dpkit.sim.needed import Registry, isolate_threads
from dpkit.sim.sending import BACKEND, become_rank
from dpkit.sim.tracing import watching_host

MESSAGES_UP_TO = 8  # ranks, unless an algorithm is chosen


def run_ranks(
    fn: Callable[..., Any], size: int, args: Any, algorithm: str | None
) -> list[Any]:
    """Do what :func:`dpkit.sim.launch` says."""
    if isinstance(c10d._world, Registry):
        raise RuntimeError("ranks are running already; launch them in turn")
    algorithm = algorithm or ("ring" if size <= MESSAGES_UP_TO else LIBRARY)
    with ExitStack() as stack:
        isolate_threads(stack)
        compute_on_shards(stack)
        world = World(size, algorithm)
        values: list[Any] = [copy.deepcopy(args) for _ in range(size)]
        store = torch._C._distributed_c10d.HashStore()

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
                if dist.is_initialized():
                    dist.destroy_process_group()

        _take_turns(world.turns, program)
    world.close()
    return values


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
        while not turns.ended.wait(0.1):
            pass  # without a limit, Ctrl-C just before it would be lost
    except BaseException:  # Ctrl-C
        while not turns.ended.wait(0.1):
            turns.stop()
        raise
    finally:
        for thread in threads:
            thread.join()
