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
from itertools import count
from typing import Any

import torch

from dpkit.sim.containers import tensors_in

# PyTorch's own; patches.py puts another one in its place.
resize_uncounted: Callable[..., Any] = torch.UntypedStorage.resize_


class Allocation(weakref.ref[torch.UntypedStorage]):
    """Memory of a device that a storage occupies: a weak reference to it."""

    __slots__ = (
        "allocated",
        "category",
        "device",
        "freed",
        "key",
        "num_bytes",
    )
    device: int
    num_bytes: int
    #: "parameters", "gradients", "optimizer state", "activations" or "other"
    category: str
    allocated: int  #: its place in the order of allocations and releases
    freed: int | None  #: the same of its release; None while it is alive
    key: int  #: the address of the storage


class Memory:
    """The bytes that live on every device."""

    _made = count()

    def __init__(self, num_devices: int, *, capacity: int) -> None:
        self.number = next(self._made)  # which memory it is
        self.capacity = capacity  # of one device
        self.peak = [0] * num_devices  # the most that lived, since a reset
        self.refusals = [0] * num_devices  # how often memory was out, likewise
        self.blocks: list[Allocation] | None = None  # those of a trace
        self._live = [0] * num_devices
        self._order = 0
        self._storages: dict[int, Allocation] = {}
        # Storages that are gone, noted by C code: a callback in Python may
        # be interrupted, and would then miss one.
        self._gone: deque[Allocation] = deque()
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
        if self._gone:  # one that is gone may have had this address
            self._release_gone()
        if storage._cdata in self._storages or self._paused:
            return
        num_bytes = storage.nbytes()
        if self._live[device] + num_bytes > self.capacity:
            self.check_room(num_bytes, device)
        self._count(storage, num_bytes, device, "other")

    def _count(
        self,
        storage: torch.UntypedStorage,
        num_bytes: int,
        device: int,
        category: str,
    ) -> None:
        made = Allocation(storage, self._gone.append)
        made.key = storage._cdata
        made.device = device
        made.num_bytes = num_bytes
        made.category = category
        made.allocated = self._order
        made.freed = None
        self._storages[made.key] = made
        self._order += 1
        live = self._live[device] = self._live[device] + num_bytes
        if live > self.peak[device]:
            self.peak[device] = live
        if self.blocks is not None:
            self.blocks.append(made)

    def check_room(self, num_bytes: int, device: int) -> None:
        """Raise ``torch.OutOfMemoryError`` if so many do not fit any more."""
        if self._gone:
            self._release_gone()
        live = self._live[device]
        if live + num_bytes > self.capacity:
            self.refusals[device] += 1
            kind, name = called(device)
            raise torch.OutOfMemoryError(
                f"{kind} out of memory. Tried to allocate {size(num_bytes)}. "
                f"{name} has a total capacity of {size(self.capacity)} "
                f"of which {size(self.capacity - live)} is free. Of the "
                f"allocated memory {size(live)} is allocated by PyTorch."
            )

    def resize(self, backing: torch.Tensor) -> None:
        """Count the storage of ``backing`` again; refuse one grown too big."""
        storage = backing.untyped_storage()
        held = self._held(storage)
        if held is None or held.num_bytes == storage.nbytes():
            return
        before = held.num_bytes
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
        self.check_room(num_bytes - held.num_bytes, held.device)
        resized = resize_uncounted(storage, num_bytes)
        self._recount(storage, held)
        return resized

    def device_of(self, storage: torch.UntypedStorage) -> int | None:
        """Return the number of the device of a storage, if it is counted."""
        held = self._held(storage)
        return None if held is None else held.device

    def _recount(
        self, storage: torch.UntypedStorage, held: Allocation
    ) -> None:
        self._release(held)
        self._count(storage, storage.nbytes(), held.device, held.category)

    def _held(self, storage: torch.UntypedStorage) -> Allocation | None:
        """Return the allocation of a storage; None if it is not counted."""
        if self._gone:  # one that is gone may have had this address
            self._release_gone()
        return self._storages.get(storage._cdata)

    def mark(self, values: Any, category: str, before: str = "") -> None:
        """Note what memory is for, or only where it was for ``before``."""
        for found in tensors_in(values):
            tensor: Any = getattr(found, "_local_tensor", found)  # a DTensor's
            if hasattr(tensor, "backing"):
                held = self._held(tensor.backing.untyped_storage())
                if held is not None and before in ("", held.category):
                    held.category = category

    def alive(self) -> list[Allocation]:
        """Return what is allocated, in the order of issue."""
        self._release_gone()
        return list(self._storages.values())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing that is allocated in a block of code."""
        before = self._paused
        self._paused = True
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

    def _release(self, held: Allocation) -> None:
        del self._storages[held.key]
        held.freed = self._order
        self._order += 1
        self._live[held.device] -= held.num_bytes


def called(device: int) -> tuple[str, str]:
    """Return what errors call a device: its kind, and its own name.

    ``as_cuda`` puts another in place.
    """
    return "sim", f"sim:{device}"


def size(num_bytes: int) -> str:
    """Return a number of bytes as torch's messages put it: 3.00 MiB."""
    if num_bytes <= 2**10:
        return f"{num_bytes} bytes"
    for power, unit in ((2, "KiB"), (3, "MiB")):
        if num_bytes <= 2 ** (10 * power):
            return f"{num_bytes / 2 ** (10 * power - 10):.2f} {unit}"
    return f"{num_bytes / 2**30:.2f} GiB"
