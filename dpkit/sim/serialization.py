"""Loading to a simulated device: ``torch.load(…, map_location="sim:1")``.

``torch.load`` moves the storages of a file, and makes tensors of them. The
storage of a simulated tensor lies on the CPU; so the one that is given back is
on the CPU, and says that it is on the simulated device. The tensor that torch
makes of it is a ``SimTensor``.
"""

from __future__ import annotations

from typing import Any

import torch

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
