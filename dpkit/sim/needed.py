"""What ``dpkit.sim.launch`` needs of torch and of the simulated machine.

Nothing of torch is changed before a launch, and only ranks refuse without it.
"""

import copy
import pkgutil
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from threading import local
from typing import Any, NamedTuple

import torch
from torch.distributed import distributed_c10d as c10d
from torch.nn.modules import module as modules

from dpkit.sim import sending
from dpkit.sim.configuration import Simulation, machine, simulation
from dpkit.sim.patching import replaced
from dpkit.sim.random_states import RandomStates
from dpkit.sim.tracing import tracing
from dpkit.theory.clock.clock import Clock

# What DTensor draws its shards by, and what of it ranks use.
_TRACKER = "torch.distributed.tensor._random.OffsetBasedRNGTracker"

_CHECKPOINT = "torch.distributed.checkpoint"

# Private names of torch that ranks use, or that PyTorch calls on their group.
NAMES = (
    "torch._C._distributed_c10d.HashStore",
    "torch._C._distributed_c10d.Logger.set_runtime_stats_and_log",
    "torch._C._distributed_c10d._set_thread_isolation_mode",
    "torch._C._len_torch_dispatch_stack",
    "torch._utils._get_available_device_type",
    "torch.autograd.Variable._execution_engine.queue_callback",
    "torch.autograd.grad_mode._unsafe_preserve_version_counter",
    "torch.distributed._Work",
    "torch.distributed.ProcessGroup._device_types",
    "torch.distributed.ProcessGroup._end_coalescing",
    "torch.distributed.ProcessGroup._get_backend",
    "torch.distributed.ProcessGroup._start_coalescing",
    f"{_CHECKPOINT}._async_process_executor.ThreadPoolExecutor",
    f"{_CHECKPOINT}._async_thread_executor.ThreadPoolExecutor",
    f"{_CHECKPOINT}.filesystem._get_available_device_type",
    "torch.distributed.distributed_c10d._World.pg_config_info",
    "torch.distributed.distributed_c10d._world",
    "torch.distributed.fsdp._debug_utils.SimpleProfiler.profile",
    "torch.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers",
    "torch.nn.modules.module._global_forward_hooks",
    "torch.ops.c10d.allreduce_.default._op_dk",
    "torch.utils._python_dispatch._disable_current_modes",
    "torch.utils._python_dispatch._pop_mode_temporarily",
    f"{_TRACKER}._distribute_region",
    f"{_TRACKER}._get_device_state",
    f"{_TRACKER}.distribute_region_enabled",
)

# PyTorch's registry of process groups: what it has, and how that begins. Each
# rank has its own registry, with all of it.
REGISTRY: dict[str, Callable[[], Any]] = {
    "default_pg": lambda: None,
    "group_count": int,
    "comms": list,
    "pg_map": dict,
    "pg_names": dict,
    "pg_group_ranks": dict,
    "pg_backend_config": dict,
    "tags_to_pg": dict,
    "pg_to_tag": dict,
    "pg_coalesce_state": dict,
    "pg_flight_recorder_hooks": dict,
}

# The hooks that torch calls for every module of the process.
HOOKS = [name for name in vars(modules) if name.startswith("_global_")]


class Registry(local):
    """PyTorch's registry of process groups, another in each rank.

    Other threads are refused: in an empty registry a thread that a rank has
    started would take itself for a program that runs alone.
    """

    pg_config_info = c10d._World.pg_config_info

    def __init__(self, caller: int) -> None:  # run in each thread
        if sending.thread.rank is None and threading.get_ident() != caller:
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
        caller = simulation.clock
        stack.enter_context(machine(hosts="per_device"))
        stack.callback(_pass_time, caller, simulation.clock)
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


def check_ranks(world_size: int) -> None:
    """Refuse ranks where torch or the machine lacks what they need.

    Raises:
        RuntimeError: a private name of torch is gone, which the error has; or
            a trace runs on a machine with one host.
        ValueError: there are fewer devices than ranks.
    """
    missing = lacking()
    if missing:
        raise RuntimeError(
            "ranks on simulated devices do not fit this torch (torch: "
            f"{torch.__version__}, missing: {', '.join(missing)}); "
            "dpkit.launch starts processes on the CPU"
        )
    if simulation.settings["hosts"] == "one" and tracing():
        raise RuntimeError(
            "each rank needs a host of its own, and a trace runs on a machine "
            "with one (hosts: 'one'); enter "
            'dpkit.sim.machine(hosts="per_device") before the trace'
        )
    count = simulation.settings["num_devices"]
    if world_size > count:
        raise ValueError(
            "each rank needs a simulated device (world_size: "
            f"{world_size}, devices: {count}); "
            f"dpkit.sim.machine(num_devices={world_size}) has as many"
        )
    _dispatcher()  # imports the rest, before there are ranks


def lacking() -> list[str]:
    """Return the names that this torch lacks, or that are new to us."""
    found = [name for name in NAMES if _value(name) is None]
    # None, before DTensor has drawn anything.
    path = "torch.distributed.tensor._random"
    if not hasattr(_value(path), "_rng_tracker"):
        found.append(f"{path}._rng_tracker")
    path = "torch.distributed.distributed_c10d._World"
    known = {*REGISTRY, "pg_config_info"}
    # One that a rank has not would be missing in the middle of a launch.
    for name, value in vars(_value(path) or object).items():
        if isinstance(value, property) and name not in known:
            found.append(f"what {path}.{name} begins with")
    return found


def _value(path: str) -> Any:
    try:
        return pkgutil.resolve_name(path)
    except (AttributeError, ImportError):
        return None
