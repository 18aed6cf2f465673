"""What ``FullyShardedDataParallel`` needs of simulated tensors.

It joins the parameters of a module in a flat one, of which each rank has a
shard. ``fully_shard`` needs nothing of this.
"""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import wraps
from typing import Any

from torch.distributed.fsdp import (
    _debug_utils,
    _init_utils,
    fully_sharded_data_parallel,
)
from torch.distributed.fsdp.api import CPUOffload

from dpkit.sim.changes import replaced
from dpkit.sim.tensors import has_to_be_opened


def _refusing_offload(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return FSDP's initialization, for parameters that stay on GPUs."""

    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        for offload in (*args, *kwargs.values()):
            if isinstance(offload, CPUOffload) and offload.offload_params:
                raise NotImplementedError(
                    "FullyShardedDataParallel leaves a gradient on the GPU "
                    "while its parameter is on the CPU, which simulated "
                    f"devices cannot (cpu_offload: {offload}); "
                    "fully_shard(…, offload_policy=CPUOffloadPolicy()) works"
                )
        return original(*args, **kwargs)

    return run


_CHANGES: list[tuple[Any, str, Any]] = [
    (_init_utils, "is_traceable_wrapper_subclass", has_to_be_opened),
    (
        fully_sharded_data_parallel,
        "_init_core_state",
        _refusing_offload(_init_utils._init_core_state),
    ),
    # Its notes of what it measures are those of the process.
    (
        _debug_utils.SimpleProfiler,
        "profile",
        staticmethod(lambda kind: nullcontext()),
    ),
]


def flatten_by_ranks(stack: ExitStack) -> None:
    """Make FSDP accept simulated parameters, until a stack ends."""
    for owner, name, value in _CHANGES:
        stack.callback(replaced(owner, name, value).apply())
