"""Start ranks, and take what they return."""

import copy
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d as c10d

from dpkit import sim
from dpkit.library import LIBRARY
from dpkit.ranks.group import SimGroup
from dpkit.ranks.turns import Ended
from dpkit.ranks.world import Registry, World
from dpkit.sim.backward import run_backward
from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import set_device
from dpkit.sim.sending import BACKEND, become_rank
from dpkit.sim.tracing import tracing
from dpkit.theory.units import check_count

MESSAGES_UP_TO = 8  # ranks, unless an algorithm is chosen


def launch(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    algorithm: str | None = None,
) -> list[Any]:
    """Run ``fn(*args)`` on ranks of this process; return their values.

    Rank r is a thread. Its device is ``sim:r``, which is also its current
    device, and its host has a clock of its own. It joins the default process
    group, of the backend "sim", before it calls ``fn``: PyTorch's engines run
    on it as on GPUs. One rank runs at a time and hands on where it waits for
    another, so two runs take the same simulated time.

    Where ranks wait for each other and nobody can go on, all end at once, and
    the error names what each has waited for.

    Args:
        fn: Each rank calls it. All see the same variables.
        world_size: The number of ranks, one device for each.
        *args: Every rank gets a copy.
        algorithm: How collectives are sent: "library" is one launch, as by
            NCCL; "ring", "star" and the like is an allreduce by hand, beside
            which other collectives take rings and trees. None: a ring for 8
            ranks at most, else the library's.

    Raises:
        RuntimeError: a rank raised an exception, which is its cause; or no
            rank could go on; or a trace runs on a machine with one host.

    Example:
        >>> import torch.distributed as dist
        >>> def total():
        ...     x = torch.tensor([1.0 + dist.get_rank()], device="sim")
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> dpkit.sim.launch(total, 3)
        [6.0, 6.0, 6.0]
    """
    check_count("world_size", world_size)
    sim.register()
    sim.check_ranks()
    if isinstance(c10d._world, Registry):
        raise RuntimeError("ranks are running already; launch them in turn")
    if algorithm is None:
        algorithm = "ring" if world_size <= MESSAGES_UP_TO else LIBRARY
    with ExitStack() as stack:
        if simulation.settings["hosts"] == "one":
            _check_no_trace()
            stack.enter_context(sim.machine(hosts="per_device"))
        _check_devices(world_size)
        stack.enter_context(_isolated())
        world = World(world_size, algorithm)
        copies = [copy.deepcopy(args) for _ in range(world_size)]
        values = _run(world, fn, copies)
    _check(world)
    return values


def _check_no_trace() -> None:
    """Refuse to change the machine under a trace, and say what to do."""
    if tracing():
        raise RuntimeError(
            "each rank needs a host of its own, and a trace runs on a machine "
            "with one (hosts: 'one'); enter "
            'dpkit.sim.machine(hosts="per_device") before the trace'
        )


def _check_devices(world_size: int) -> None:
    """Refuse more ranks than there are devices."""
    count = simulation.settings["num_devices"]
    if world_size > count:
        raise ValueError(
            "each rank needs a simulated device (world_size: "
            f"{world_size}, devices: {count}); "
            f"dpkit.sim.machine(num_devices={world_size}) has as many"
        )


@contextmanager
def _isolated() -> Iterator[None]:
    """Give each thread its own registries; leave the caller's as they are."""
    compiled: Any = torch._C._distributed_c10d
    isolate = compiled._set_thread_isolation_mode
    before, random, hook = c10d._world, torch.get_rng_state(), sys.excepthook
    registry: Any = Registry()
    c10d._world = registry
    isolate(True)
    try:
        yield
    finally:
        isolate(False)
        c10d._world = before
        torch.set_rng_state(random)
        sys.excepthook = hook  # each group puts its rank before errors


def _run(
    world: World, fn: Callable[..., Any], args: list[tuple[Any, ...]]
) -> list[Any]:
    """Run all ranks to their end; return their values."""
    values: list[Any] = [None] * world.size
    store = HashStore()

    def program(rank: int) -> None:
        become_rank(lambda options: SimGroup(options, world, rank))
        set_device(rank)
        dist.init_process_group(
            BACKEND, rank=rank, world_size=world.size, store=store
        )
        try:
            values[rank] = fn(*args[rank])
        finally:
            dist.destroy_process_group()

    threads = [
        threading.Thread(
            target=world.turns.run,
            args=(rank, lambda rank=rank: program(rank)),
            name=f"rank {rank}",
            daemon=True,
        )
        for rank in range(world.size)
    ]
    for each in threads:
        each.start()
    world.turns.begin()
    # Not by join: Ctrl-C in it would make Python 3.11 take the thread it waits
    # for as ended (github.com/python/cpython/issues/90882).
    try:
        world.turns.ended.wait()
    except BaseException:  # Ctrl-C
        world.turns.end()
        while not world.turns.ended.wait(0.1):
            _raise_in(threads[world.turns.running])
        raise
    finally:
        for each in threads:
            each.join()
    return values


def _raise_in(thread: threading.Thread) -> None:
    """Raise Ended in a thread, when it comes to its next line of Python.

    Not in a backward: where C++ has called Python, that would end the process.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code is run_backward.__code__:
            return
        frame = frame.f_back
    number = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(Ended))


def _check(world: World) -> None:
    """Raise what went wrong, if anything."""
    # PyTorch may keep a group, and so the world, beyond its end: it must not
    # keep tensors, such as those in an error's frames.
    errors, world.turns.errors = world.turns.errors, {}
    world.forget()
    for rank, error in errors.items():
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        raise RuntimeError(f"rank {rank} failed ({told})") from error
    if world.turns.stuck:
        raise RuntimeError(f"no rank can go on ({world.turns.stuck})")
