"""Tensors in memory that two processes share.

A rank packs what it contributes to a collective. The parent opens the same
memory, and the collective runs there, in place. Then the rank takes out what
has come of it::

    rank                      shared memory           parent
    gradients ── pack ─────▶  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  ◀────  unpack, allreduce
    gradients ◀── take_out ─  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒

If tensors have no values (``backing="meta"``), their shapes are sent, and what
is known of small integers.
"""

import mmap
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpkit.sim.containers import tensors_in
from dpkit.sim.memory import (
    has_no_gaps,
    keep_values,
    lose_values,
    may_keep,
    values_of,
)
from dpkit.sim.tensors import SimTensor, plain

ALIGNMENT = 64  # bytes: a tensor of any dtype may begin at a multiple


class PackedTensor(NamedTuple):
    """A tensor in shared memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: int | None  # the number of a simulated device; None: the CPU
    offset: int | None  # in the memory, in bytes; None: it has no values there
    on_meta: bool  # whether it is of a machine without values
    is_known: bool  # whether its values are in the memory


class Parcel(NamedTuple):
    """What is sent of shared memory: where it is, and what lies in it."""

    contents: Any  # as the rank has it, with a PackedTensor for each tensor
    file: int  # the descriptor of the memory, in the process of the rank
    num_bytes: int  # 0: there is no memory


class SharedMemory:
    """A piece of memory that another process can open.

    Args:
        num_bytes: Its size.
        path: The file of the memory, if another process has made it.
    """

    def __init__(self, num_bytes: int, path: str | None = None) -> None:
        self.file = -1
        if not num_bytes:
            return
        if path is None:
            self.file = os.memfd_create("dpkit")
            os.ftruncate(self.file, num_bytes)
        else:
            self.file = os.open(path, os.O_RDWR)
        self._bytes = mmap.mmap(self.file, num_bytes)

    def close(self) -> None:
        """Close the file; tensors keep the memory."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def tensor(self, packed: PackedTensor) -> Tensor:
        """Return the tensor that lies at a place, and shares the memory."""
        count = torch.Size(packed.shape).numel()
        if not count:
            return torch.empty(packed.shape, dtype=packed.dtype, device="cpu")
        if packed.offset is None:
            # A file takes room only where it is written: without values a
            # tensor may be larger than the memory of this machine.
            room = SharedMemory(count * packed.dtype.itemsize)
            room.close()
            flat = torch.frombuffer(room._bytes, dtype=packed.dtype)
            return flat.view(packed.shape)
        flat = torch.frombuffer(
            self._bytes,
            dtype=torch.uint8,
            count=count * packed.dtype.itemsize,
            offset=packed.offset,
        ).view(packed.dtype)
        return flat.as_strided(packed.shape, packed.stride)


class Packed:
    """Tensors of a rank, packed.

    Args:
        tensors: Tensors in lists and tuples, or what has none.
        is_given: Whether the values of a tensor are sent. The others only come
            back.
    """

    def __init__(
        self, tensors: Any, is_given: Callable[[Tensor], bool]
    ) -> None:
        self._tensors = tensors_in(tensors)
        self._packed: list[PackedTensor] = []
        end = 0
        for x in self._tensors:
            packed = _packed_tensor(x, end, is_given(x))
            self._packed.append(packed)
            if packed.offset is not None:
                end += -(-x.nbytes // ALIGNMENT) * ALIGNMENT
        self._memory = SharedMemory(end)
        for x, packed in zip(self._tensors, self._packed):
            known = values_of(plain(x))
            if packed.is_known and known is not None:
                self._memory.tensor(packed).copy_(known.detach())
        remaining = iter(self._packed)
        contents = mapped(tensors, lambda x: next(remaining))
        self.parcel = Parcel(contents, self._memory.file, end)

    def take_out(
        self, is_written: Callable[[Tensor], bool], known: list[bool]
    ) -> None:
        """Copy what has come into the tensors that were written to.

        Args:
            is_written: Whether that is so for a tensor.
            known: Whether the values of each are known now.
        """
        self._memory.close()
        for x, packed, is_known in zip(self._tensors, self._packed, known):
            if is_written(x):
                _write(plain(x), self._memory.tensor(packed), is_known)


def _packed_tensor(x: Tensor, end: int, is_given: bool) -> PackedTensor:
    """Return where a tensor lies in memory that is full up to ``end``."""
    backing = plain(x)
    has_room = not backing.is_meta or may_keep(backing)
    stride = backing.stride()
    if not has_no_gaps(backing):
        stride = torch.empty(backing.shape, device="meta").stride()
    return PackedTensor(
        dtype=backing.dtype,
        shape=tuple(backing.shape),
        stride=stride,
        device=x.device.index if x.device.type == "sim" else None,
        offset=end if has_room else None,
        on_meta=backing.is_meta,
        is_known=has_room and is_given and values_of(backing) is not None,
    )


def _write(backing: Tensor, values: Tensor, is_known: bool) -> None:
    """Write values to a plain tensor; without any, it has none."""
    if not backing.is_meta:
        backing.detach().copy_(values)
    elif not is_known:
        lose_values(backing)
    elif may_keep(backing):
        keep_values(backing, values)


def unpack(parcel: Parcel, process: int) -> tuple[Any, SharedMemory]:
    """Return the tensors that another process has packed, and their memory."""
    path = f"/proc/{process}/fd/{parcel.file}"
    memory = SharedMemory(parcel.num_bytes, path)
    memory.close()
    tensors = mapped(parcel.contents, lambda packed: _open(packed, memory))
    return tensors, memory


def _open(packed: PackedTensor, memory: SharedMemory) -> Tensor:
    if packed.on_meta:
        backing = torch.empty_strided(
            packed.shape, packed.stride, dtype=packed.dtype, device="meta"
        )
        if packed.is_known:
            keep_values(backing, memory.tensor(packed))
    else:
        backing = memory.tensor(packed)
    if packed.device is None:
        return backing
    return SimTensor(backing, torch.device("sim", packed.device))


def put_back(parcel: Parcel, tensors: Any, memory: SharedMemory) -> list[bool]:
    """Put values that are known into memory; return of which they are.

    Only small integers of a machine without values have to be put there: all
    other tensors share the memory.
    """
    packed_tensors: list[PackedTensor] = []
    mapped(parcel.contents, packed_tensors.append)
    found = []
    for packed, x in zip(packed_tensors, tensors_in(tensors)):
        values = values_of(plain(x))
        found.append(values is not None)
        has_room = packed.on_meta and packed.offset is not None
        if has_room and values is not None:
            memory.tensor(packed).copy_(values)
    return found


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists and tuples with each (packed) tensor changed."""
    if isinstance(value, (Tensor, PackedTensor)):
        return change(value)
    if isinstance(value, (list, tuple)):
        kind = tuple if isinstance(value, tuple) else list
        return kind(mapped(item, change) for item in value)
    return value
