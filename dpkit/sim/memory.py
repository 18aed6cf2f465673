"""The memory of simulated devices: live and peak bytes, by storage.

A storage counts once, however many tensors view it, from the moment a
simulated tensor first uses it until the last of them is gone::

    x = torch.ones(5, 3, device="sim:1")    live: 60 bytes on sim:1
    y = x[1:]                               60: the storage of x
    del x                                   60: y still uses it
    del y                                   0; the peak stays at 60
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dpkit.theory.clock.record import Block

# PyTorch's own; patches.py puts another one in its place.
resize_uncounted: Callable[..., Any] = torch.UntypedStorage.resize_


class _Held(weakref.ref[torch.UntypedStorage]):
    """A storage that is counted: where, and the block that it occupies."""

    __slots__ = ("block", "device", "key")
    block: Block
    device: int
    key: int


class Memory:
    """The bytes that live on every device."""

    def __init__(self, num_devices: int, capacity: int) -> None:
        self.capacity = capacity  # of one device
        self.peak = [0] * num_devices  # the most that lived, since a reset
        self.refusals = [0] * num_devices  # how often memory was out, likewise
        self.blocks: list[Block] | None = None  # those made in a trace
        self._live = [0] * num_devices
        self._order = 0
        self._storages: dict[int, _Held] = {}
        # Storages that are gone, noted by C code: a callback in Python may
        # be interrupted, and would then miss one.
        self._gone: deque[_Held] = deque()
        self._paused = False
        self.freed = False  # whether a storage was ever freed by resizing

    @property
    def live(self) -> list[int]:
        """The bytes that live on each device."""
        self._release_gone()
        return self._live

    @property
    def order(self) -> int:
        """How many allocations and releases there were."""
        self._release_gone()
        return self._order

    def hold(self, backing: torch.Tensor, device: int) -> None:
        """Count the storage of ``backing``, unless it is counted already."""
        storage = backing.untyped_storage()
        if self._held(storage) is None and not self._paused:
            self.check_room(storage.nbytes(), device)
            self._count(storage, device, "other")

    def _count(
        self, storage: torch.UntypedStorage, device: int, category: str
    ) -> None:
        num_bytes = storage.nbytes()
        held = _Held(storage, self._gone.append)
        held.key, held.device = storage._cdata, device
        held.block = Block(f"sim:{device}", num_bytes, category, self._order)
        self._storages[held.key] = held
        self._order += 1
        self._live[device] += num_bytes
        self.peak[device] = max(self.peak[device], self._live[device])
        if self.blocks is not None:
            self.blocks.append(held.block)

    def check_room(self, num_bytes: int, device: int) -> None:
        """Raise ``torch.OutOfMemoryError`` if so many do not fit any more."""
        live = self.live[device]
        if live + num_bytes > self.capacity:
            self.refusals[device] += 1
            raise torch.OutOfMemoryError(
                f"sim out of memory. Tried to allocate {size(num_bytes)}. "
                f"sim:{device} has a total capacity of {size(self.capacity)} "
                f"of which {size(self.capacity - live)} is free. Of the "
                f"allocated memory {size(live)} is allocated by PyTorch."
            )

    def resize(self, backing: torch.Tensor) -> None:
        """Count the storage of ``backing`` again; refuse one grown too big."""
        storage = backing.untyped_storage()
        held = self._held(storage)
        if held is None or held.block.num_bytes == storage.nbytes():
            return
        before = held.block.num_bytes
        try:
            self.check_room(storage.nbytes() - before, held.device)
        except torch.OutOfMemoryError:
            resize_uncounted(storage, before)
            raise
        self._recount(storage, held)

    def resize_storage(
        self, storage: torch.UntypedStorage, num_bytes: int
    ) -> Any:
        """Give a storage another size, and count it again if it is counted."""
        self.freed |= num_bytes == 0
        held = self._held(storage)
        if held is None:
            return resize_uncounted(storage, num_bytes)
        self.check_room(num_bytes - held.block.num_bytes, held.device)
        resized = resize_uncounted(storage, num_bytes)
        self._recount(storage, held)
        return resized

    def device_of(self, storage: torch.UntypedStorage) -> int | None:
        """Return the number of the device of a storage, if it is counted."""
        held = self._held(storage)
        return None if held is None else held.device

    def _recount(self, storage: torch.UntypedStorage, held: _Held) -> None:
        self._release(held)
        self._count(storage, held.device, held.block.category)

    def _held(self, storage: torch.UntypedStorage) -> _Held | None:
        """Return how a storage is counted; None if it is not."""
        if self._gone:  # one that is gone may have had this address
            self._release_gone()
        return self._storages.get(storage._cdata)

    def mark(self, values: Any, category: str, before: str = "") -> None:
        """Note what memory is for, or only where it was for ``before``."""
        for tensor in tensors_in(values):
            if hasattr(tensor, "backing"):
                held = self._held(tensor.backing.untyped_storage())
                if held is not None and before in ("", held.block.category):
                    held.block.category = category

    def alive(self) -> list[Block]:
        """Return the blocks that are alive, in the order of issue."""
        self._release_gone()
        return [held.block for held in self._storages.values()]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing that is allocated in a block of code."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _release_gone(self) -> None:
        while self._gone:
            try:  # another thread may have taken the last one
                held = self._gone.popleft()
            except IndexError:
                return
            if self._storages.get(held.key) is held:
                self._release(held)

    def _release(self, held: _Held) -> None:
        del self._storages[held.key]
        held.block.freed = self._order
        self._order += 1
        self._live[held.device] -= held.block.num_bytes


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in ``value`` and in the containers inside it."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    found = []
    for item in value:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple, dict)):
            found += tensors_in(item)
    return found


def size(num_bytes: int) -> str:
    """Return a number of bytes as torch's messages put it: 3.00 MiB."""
    if num_bytes <= 2**10:
        return f"{num_bytes} bytes"
    for power, unit in ((2, "KiB"), (3, "MiB")):
        if num_bytes <= 2 ** (10 * power):
            return f"{num_bytes / 2 ** (10 * power - 10):.2f} {unit}"
    return f"{num_bytes / 2**30:.2f} GiB"
