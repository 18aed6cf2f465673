"""``torch.load``: where it puts what it loads.

A program names a place as ``cuda:1``. Files that a GPU wrote, or a program in
whose memory ``cuda`` means the simulated devices, name such places as well.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from dpkit.sim.cuda_names.names import seen, simulated, simulated_number
from dpkit.sim.tensors.storages import move_storage


def loading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``torch.load`` that reads the devices to load to."""

    @wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kw: Any) -> Any:
        return original(f, _read_location(map_location), *args, **kw)

    return load


def restoring(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``default_restore_location`` that reads the place in a file."""

    @wraps(original)
    def restore(storage: Any, location: str) -> Any:
        return original(storage, _place_of(location))

    return restore


def storage_to_cuda(
    self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> Any:
    """Stand in for ``torch.UntypedStorage.cuda``."""
    target = simulated_number("cuda" if device is None else device)
    return move_storage(self, str(target))


def _read_location(location: Any) -> Any:
    if isinstance(location, dict):
        # Tensors are saved with the name that the program sees; what plain
        # dpkit has saved has its own.
        own = {_place_of(key): value for key, value in location.items()}
        return {**own, **location}
    if callable(location):
        return lambda storage, place: location(storage, _seen(place))
    return simulated(location)


def _place_of(device: Any) -> Any:
    """Return the name of a simulated device; all else as it is."""
    read = simulated(device)
    return str(read) if isinstance(read, torch.device) else read


def _seen(place: str) -> str:
    return str(seen(torch.device(place))) if place[:3] == "sim" else place
