"""The memory of simulated devices: live and peak bytes, by storage.

A storage counts once, however many tensors view it, from the moment a
simulated tensor first uses it until the last of them is gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dpkit.theory.record import Block


class _Live:
    """A storage that is alive: its block, and who tells of its end."""

    __slots__ = ("block", "reference")

    def __init__(self, block: Block, reference: object) -> None:
        self.block = block
        self.reference = reference


class Memory:
    """The bytes that live on every device.

    Attributes:
        capacity: The bytes that a device has.
        live: The bytes that live on each device.
        peak: The most that have lived on each since the last reset.
        phase: The category of what is allocated now.
        blocks: While it is not None, every new block is added to it.
        order: How many allocations and releases there were.
    """

    def __init__(self, num_devices: int, capacity: int) -> None:
        self.capacity = capacity
        self.live = [0] * num_devices
        self.peak = [0] * num_devices
        self.phase = "other"
        self.blocks: list[Block] | None = None
        self.order = 0
        self._storages: dict[int, _Live] = {}
        self._paused = False

    def hold(self, backing: torch.Tensor, device: int) -> None:
        """Count the storage of ``backing``, unless it is counted already.

        Raises:
            torch.OutOfMemoryError: it does not fit on the device.
        """
        storage = backing.untyped_storage()
        key = storage._cdata
        if key in self._storages or self._paused:
            return
        num_bytes = storage.nbytes()
        live = self.live[device] + num_bytes
        if live > self.capacity:
            raise torch.OutOfMemoryError(self._refusal(device, num_bytes))
        self.live[device] = live
        if live > self.peak[device]:
            self.peak[device] = live
        block = Block(f"sim:{device}", num_bytes, self.phase, self.order)
        self.order += 1

        def release(_: object, self: Memory = self, key: int = key) -> None:
            self._release(key, device)

        self._storages[key] = _Live(block, weakref.ref(storage, release))
        if self.blocks is not None:
            self.blocks.append(block)

    def resize(self, backing: torch.Tensor, device: int) -> None:
        """Count the storage of ``backing`` anew, which may have grown."""
        storage = backing.untyped_storage()
        held = self._storages.get(storage._cdata)
        if held is None or held.block.num_bytes == storage.nbytes():
            return
        self._release(storage._cdata, device)
        self.hold(backing, device)

    def block_of(self, backing: torch.Tensor) -> Block | None:
        """Return the block that the storage of ``backing`` occupies."""
        held = self._storages.get(backing.untyped_storage()._cdata)
        return None if held is None else held.block

    def alive(self) -> list[Block]:
        """Return the blocks that are alive, in the order of issue."""
        return [held.block for held in self._storages.values()]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing that is allocated in a block of code."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _release(self, key: int, device: int) -> None:
        block = self._storages.pop(key).block
        block.freed = self.order
        self.order += 1
        self.live[device] -= block.num_bytes

    def _refusal(self, device: int, num_bytes: int) -> str:
        """Return the words in which torch says that memory has run out."""
        free = self.capacity - self.live[device]
        return (
            f"sim out of memory. Tried to allocate {size(num_bytes)}. "
            f"sim:{device} has a total capacity of {size(self.capacity)} "
            f"of which {size(free)} is free. Of the allocated memory "
            f"{size(self.live[device])} is allocated by PyTorch."
        )


def size(num_bytes: int) -> str:
    """Return a number of bytes as torch's messages put it.

    Example:
        >>> size(700), size(3 * 2**20), size(5 * 2**30)
        ('700 bytes', '3.00 MiB', '5.00 GiB')
    """
    if num_bytes <= 2**10:
        return f"{num_bytes} bytes"
    for power, unit in ((2, "KiB"), (3, "MiB")):
        if num_bytes <= 2 ** (10 * power):
            return f"{num_bytes / 2 ** (10 * power - 10):.2f} {unit}"
    return f"{num_bytes / 2**30:.2f} GiB"
