"""``parallel_apply``: replicas compute one after another.

PyTorch gives each replica a thread. The threads share the lock of Python, so
their operations are issued one after another all the same, in an order that
differs from run to run. Here the order is that of the replicas: the host gives
all operations of one to its device, then all of the next. The devices work at
the same time, as GPUs do, unless a replica makes the host wait for its device.
A replica that waits for another one, as by a lock, waits for ever.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._utils import ExceptionWrapper, _get_device_index

from dpkit.sim import torch_sim


def apply_in_turn(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Stand in for ``torch.nn.parallel.parallel_apply``, on its arguments.

    All replicas compute, even if one fails; the error of the first that has
    failed is raised then, as PyTorch does.
    """
    named = kwargs_tup if kwargs_tup is not None else [{} for _ in modules]
    places = devices if devices is not None else [None for _ in modules]
    for what, given in (
        ("inputs", inputs),
        ("kwargs_tup", named),
        ("devices", places),
    ):
        if len(given) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the "
                f"number of {what} {len(given)}"
            )
    with _autocast_of_a_thread(len(modules)):
        results = [
            _result(i, module, args, kwargs, _get_device_index(device, True))
            for i, (module, args, kwargs, device) in enumerate(
                zip(modules, inputs, named, places, strict=True)
            )
        ]
    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results


def _autocast_of_a_thread(replicas: int) -> AbstractContextManager[Any]:
    """Return the block of autocast in which the threads of replicas compute.

    A thread does not know the dtype that autocast was begun with, and computes
    in float16. A single replica computes in the caller's thread.
    """
    if replicas > 1 and torch.is_autocast_enabled("sim"):
        return torch.autocast("sim", torch.float16)
    return nullcontext()


def _result(
    i: int, module: nn.Module, args: Any, kwargs: dict[str, Any], device: int
) -> Any:
    """Return what a replica computes, or the error by which it fails."""
    if not isinstance(args, (list, tuple)):
        args = (args,)
    try:
        with torch_sim.device(device):
            return module(*args, **kwargs)
    except Exception:
        return ExceptionWrapper(where=f"in replica {i} on device {device}")
