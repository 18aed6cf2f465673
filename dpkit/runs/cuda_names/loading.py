"""``torch.load``: where it puts what it loads.

A program names a place as ``cuda:1``. Files that a GPU wrote, or a program for
which ``cuda`` means the simulated devices, name such places as well. A tensor
in them goes to its place by ``Tensor.to``; what has a storage comes here.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from dpkit.runs.cuda_names.names import simulated, simulated_number
from dpkit.sim.tensors import move_storage


def restoring(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``default_restore_location`` that reads a place."""

    @wraps(original)
    def restore(storage: Any, location: str) -> Any:
        return original(storage, str(simulated(location)))

    return restore


def storage_to_cuda(
    self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> Any:
    """Stand in for ``torch.UntypedStorage.cuda``."""
    target = simulated_number("cuda" if device is None else device)
    return move_storage(self, str(target))
