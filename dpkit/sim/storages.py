"""What PyTorch's storages do when there are simulated devices.

A storage is the memory behind a tensor. That of a simulated tensor lies where
its numbers are, and counts as memory of the simulated device.
"""

from __future__ import annotations

from typing import Any

import torch

from dpkit.sim.configuration import simulation


def new_storage(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for ``UntypedStorage.__new__``, which would end the process.

    Raises:
        NotImplementedError: the storage is to be on a simulated device.
    """
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "sim":
        raise NotImplementedError(
            "a simulated device has no storage without a tensor (device: "
            f"{device}); torch.empty makes a tensor there"
        )
    return torch._C.StorageBase.__new__(cls, *args, **kwargs)


def resize_storage(self: torch.UntypedStorage, size: int) -> Any:
    """Stand in for ``UntypedStorage.resize_``; the memory is told of it.

    Raises:
        torch.OutOfMemoryError: it does not fit on the simulated device.
    """
    return simulation.memory.resize_storage(self, size)
