"""Loading to a simulated device: ``torch.load(…, map_location="sim:1")``.

``torch.load`` moves the storages of a file, and makes tensors of them. The
storage of a simulated tensor lies on the CPU; so the one that is given back is
on the CPU, and says that it is on the simulated device. The tensor that torch
makes of it is a ``SimTensor``.

A simulated tensor is saved as one of the CPU and the name of its device, which
torch asks ``map_location`` about as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import serialization

from dpkit.sim.configuration import simulation
from dpkit.sim.numbering import full_device


class SimStorage(torch.UntypedStorage):
    """A storage on the CPU that claims to be on a simulated device."""

    claimed: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that it claims to be on."""
        return self.claimed


def move_storage(storage: Any, location: str) -> SimStorage | None:
    """Return ``storage`` on ``location``; None if that is not simulated."""
    if not location.startswith("sim"):
        return None
    if simulation.backing.type == "meta":
        raise RuntimeError(
            "there is no place for numbers (map_location: "
            f"{location!r}, backing: 'meta'); load to the CPU"
        )
    moved = SimStorage(storage.nbytes())  # type: ignore[no-untyped-call]
    moved.copy_(storage)
    moved.claimed = full_device(location)
    return moved


_usual_location: Callable[..., Any] = torch._utils._get_restore_location
_usual_load: Callable[..., Any] = serialization._load


def location_of(device: str) -> Any:
    """Return where a tensor goes that was saved on ``device``.

    ``map_location`` may be a function of a storage and of this name. It is
    given a storage without numbers: where it puts that goes the tensor.
    """
    chosen: Any = serialization._serialization_tls.map_location
    if not callable(chosen):
        return _usual_location(device)
    storage = chosen(torch.UntypedStorage(0), device)
    return device if storage is None else storage.device


def load(*args: Any, **options: Any) -> Any:
    """Stand in for the part of ``torch.load`` that knows ``map_location``.

    PyTorch forgets it after a load. After one that failed, too: or it would
    decide where the tensors of every later pickle go.
    """
    try:
        return _usual_load(*args, **options)
    finally:
        serialization._serialization_tls.map_location = None
