"""What ``dpkit.sim.launch`` needs of torch and of the simulated machine.

Nothing of torch is changed before a launch. Where this torch lacks a private
name that ranks use, ranks are refused, and all else works. So this module
imports none of them.
"""

import pkgutil
from collections.abc import Callable
from typing import Any

import torch

from dpkit.sim.devices import device_count, simulation
from dpkit.sim.tracing import tracing

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
    "torch.distributed.fsdp._init_utils.is_traceable_wrapper_subclass",
    "torch.distributed.fsdp.fully_sharded_data_parallel._init_core_state",
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


def check_ranks(world_size: int, alike: bool = False) -> None:
    """Refuse ranks where torch or the machine lacks what they need.

    Args:
        world_size: The number of ranks, one device for each.
        alike: Whether one rank stands for all. It must be one of the
            machine's ranks, while torch need not have a device for each.

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
    count = simulation.settings["num_devices"] if alike else device_count()
    if world_size > count:
        raise ValueError(
            "each rank needs a simulated device (world_size: "
            f"{world_size}, devices: {count}); "
            f"dpkit.sim.machine(num_devices={world_size}) has as many"
        )


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
