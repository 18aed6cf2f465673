"""What PyTorch has once in a process, and each rank has for itself.

Those are the registry of process groups, random numbers, the default dtype,
the hooks of all modules, and what DistributedDataParallel, DTensor and
``context_parallel`` keep. All is set back when the ranks have ended.
"""

import copy
import sys
import threading
from contextlib import ExitStack
from functools import cache
from threading import local
from typing import Any, NamedTuple

import torch
from torch.distributed import distributed_c10d as c10d
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel

from dpkit.runs.ranks import context_parallel_state
from dpkit.runs.ranks.context_parallel_state import ContextParallelState
from dpkit.runs.ranks.needed import REGISTRY
from dpkit.sim.changes import replaced
from dpkit.sim.clock import Clock
from dpkit.sim.devices import RandomStates, Simulation, machine, simulation
from dpkit.sim.streams import thread

# The hooks that torch calls for every module of the process.
HOOKS = [name for name in vars(modules) if name.startswith("_global_")]


class Registry(local):
    """PyTorch's registry of process groups, another in each rank.

    Other threads are refused: in an empty registry a thread that a rank has
    started would take itself for a program that runs alone.
    """

    pg_config_info = c10d._World.pg_config_info

    def __init__(self, caller: int) -> None:  # run in each thread
        if thread.rank is None and threading.get_ident() != caller:
            raise RuntimeError(
                "a process group is for the program of its rank, in the "
                "thread that runs it (asked for by: "
                f"{threading.current_thread().name!r})"
            )
        for name, make in REGISTRY.items():
            setattr(self, name, make())


def isolate_threads(stack: ExitStack) -> None:
    """Give each thread its own host and registries, until a stack ends."""
    if simulation.settings["hosts"] == "one":
        caller = simulation.whole_clock
        stack.enter_context(machine(hosts="per_device"))
        stack.callback(_pass_time, caller, simulation.whole_clock)
    compiled: Any = torch._C._distributed_c10d
    changes: list[tuple[Any, str, Any]] = [
        (c10d, "_world", Registry(threading.get_ident())),
        (Simulation, "ranks_run", True),
        # Each group puts its rank before errors, also after a launch.
        (sys, "excepthook", sys.excepthook),
        # DDP has no timer for simulated devices, and would warn.
        (compiled.Logger, "set_runtime_stats_and_log", lambda logger: None),
    ]
    for owner, name, value in changes:
        stack.callback(replaced(owner, name, value).apply())
    stack.callback(ThreadState.now().restore)
    compiled._set_thread_isolation_mode(True)
    stack.callback(compiled._set_thread_isolation_mode, False)


def _pass_time(caller: Clock, ranks: Clock) -> None:
    """Add the time of the ranks and their devices to the caller's."""
    for device in range(ranks.cluster.num_devices):
        ranks.wait(device, cost=0.0)
    caller.hosts.busy(0, "ranks", ranks.now())


class ThreadState(NamedTuple):
    """What PyTorch has once in a process, and a rank has for itself."""

    random: RandomStates
    dtype: torch.dtype
    rules: dict[Any, Any]  # PyTorch's own, which its modules hold, too
    in_rules: dict[Any, Any]  # what is in them
    tracker: Any  # what DTensor draws its shards by, once it has
    hooks: dict[str, Any]  # of all modules, by their names in torch
    in_forward: Any  # the DistributedDataParallel whose forward runs, or None
    sequences: ContextParallelState

    @classmethod
    def now(cls) -> "ThreadState":
        """Return what there is: random numbers, DTensor's rules, …."""
        rules = _dispatcher()._custom_op_handlers
        return cls(
            random=RandomStates.now(),
            dtype=torch.get_default_dtype(),
            rules=rules,
            in_rules=dict(rules),
            tracker=_tracking()._rng_tracker,
            hooks={name: getattr(modules, name) for name in HOOKS},
            in_forward=DistributedDataParallel._active_ddp_module,
            sequences=ContextParallelState.now(),
        )

    @classmethod
    def of_ranks(cls, count: int) -> "list[ThreadState]":
        """Return what each rank begins with.

        That is what the caller has, except for the random numbers.
        """
        return [
            cls.now()._replace(
                random=RandomStates.drawn(),
                hooks={n: copy.copy(getattr(modules, n)) for n in HOOKS},
            )
            for _ in range(count)
        ]

    def restore(self) -> None:
        """Go on with it."""
        self.random.restore()
        torch.set_default_dtype(self.dtype)
        self.rules.clear()
        self.rules.update(self.in_rules)
        _dispatcher()._custom_op_handlers = self.rules
        _tracking()._rng_tracker = self.tracker
        vars(modules).update(self.hooks)
        DistributedDataParallel._active_ddp_module = self.in_forward
        self.sequences.restore()


def import_dtensor() -> None:
    """Import DTensor, which takes a second, before there are ranks."""
    _dispatcher()
    _tracking()
    context_parallel_state.modules()


@cache
def _dispatcher() -> Any:
    # Here, not above: they take a second.
    from torch._subclasses import FakeTensorMode
    from torch.distributed.tensor import DTensor

    # What torch 2.11 makes for it ends with the thread that comes first.
    with FakeTensorMode():
        pass
    return DTensor._op_dispatcher


@cache
def _tracking() -> Any:
    from torch.distributed.tensor import _random  # a second, too

    return _random
