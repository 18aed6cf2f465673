"""Allreduce between processes of one host, through memory that they share.

A tensor is worked through in segments that stay in the caches. Of a segment,
each rank owns a part, which it adds up; three ranks::

                 part 0   part 1   part 2
    slot 0      [         own 1    own 2 ]     1. each rank writes what others
    slot 1      [ own 0            own 2 ]        add up into its slot
    slot 2      [ own 0   own 1          ]
    result      [ sum 0   sum 1   sum 2  ]     2. adds up its part, 3. copies
                                                  the others' sums out

Between two steps all have to wait for each other. So the steps of three
segments are done between two barriers: 1 of a segment, 2 of the one before, 3
of the one before that. With two sets of slots and results, taken in turns, no
one writes where another still reads.
"""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import Tensor

from dpkit.processes.barrier import LINE, Barrier
from dpkit.processes.mapping import shared_mapping
from dpkit.processes.segments import COMBINE, Views

# Small enough for the caches, large enough that few barriers are needed: a
# rank that has lost its core for a moment makes the others wait at each.
SEGMENT_BYTES = 2**20
CALL_BYTES = 128  # what a rank says of its call, as text
DIGEST_DIGITS = 16  # of a text that is longer
MAX_PLACES = 64  # for tensors of how many lengths the views are kept


class SharedAllreduce:
    """Allreduce on one host, through memory that its processes share.

    All ranks of the group make one together, and call it together. A result
    has the same bits on all ranks. It is the sum in order of rank, which is
    that of :func:`dpkit.allreduce` by its star; only the sign of a zero that
    is a maximum or minimum, and the bits of a NaN, may be others. The memory
    goes with the last process that has it, however that ends. Processors
    other than x86-64 get right results too, but slowly: their ranks wait for
    each other by messages.

    A call that is broken off, by a rank that is late or by Ctrl-C, breaks it
    on all ranks: this call or the next one fails on each, and all later ones.

    Args:
        group: The process group; None for the default group.
        segment_bytes: The size of the pieces in which a tensor is worked
            through, a multiple of 64; ``2 · (world_size + 1)`` of these are
            held.
        timeout_seconds: How long a rank waits for the others.

    Raises:
        ValueError: the ranks are not on one host, or the size of a segment
            is not a positive multiple of 64.

    Example:
        >>> from dpkit.processes import launch, shared_memory
        >>> launch(shared_memory.sum_of_ranks, 2, 3)
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        timeout_seconds: float = 60.0,
    ) -> None:
        if segment_bytes < 1 or segment_bytes % 64:
            raise ValueError(
                "the size of a segment is not a positive multiple of 64 "
                f"(segment_bytes: {segment_bytes})"
            )
        group = group or dist.group.WORLD
        if group is None or dist.get_rank(group) < 0:
            raise ValueError("this process is not a rank of the group")
        self._rank, self._world_size = dist.get_rank(group), group.size()
        self._segment_bytes = segment_bytes
        k, line = self._world_size, 8 * LINE
        head = k * (line + CALL_BYTES)
        shared = shared_mapping(head + 2 * (k + 1) * segment_bytes, group)
        counters = memoryview(shared)[: k * line].cast("q")
        self._calls = memoryview(shared)[k * line : head]
        self._barrier = Barrier(counters, group, timeout_seconds)
        # Two sets, each of the slots of all ranks and the result.
        data = torch.frombuffer(shared, dtype=torch.uint8, offset=head)
        self._sets = data.view(2, k + 1, segment_bytes)
        self._is_broken = False
        self._places: dict[tuple[torch.dtype, int, int], Views] = {}

    @torch.no_grad()
    def __call__(self, tensor: Tensor, op: str = "sum") -> None:
        """Leave the sum, mean, maximum or minimum in each, in place.

        Args:
            tensor: A tensor of one shape and dtype on all ranks, on the CPU.
            op: "sum", "mean", "max" or "min", each element by itself.

        Raises:
            ValueError: the ranks call with different shapes, dtypes or ops;
                the tensor does not lie on the CPU; an unknown op, the mean of
                integers, or the maximum of complex numbers.
            TimeoutError: some ranks did not come in time.
            RuntimeError: a call was broken off, by this rank before or by
                others; there is no way on from there but a new group.
        """
        _check(tensor, op)
        if self._is_broken:
            raise RuntimeError(
                "an earlier call was broken off, so ranks may be in different "
                "calls; make a new SharedAllreduce, in a new group"
            )
        whole = tensor.contiguous()
        try:
            self._call_together(whole, op)
        except ValueError:
            raise  # in which all ranks agree
        except BaseException:  # Ctrl-C among them
            self._is_broken = True
            self._barrier.give_up()
            raise
        if whole is not tensor:
            tensor.copy_(whole)

    def _call_together(self, whole: Tensor, op: str) -> None:
        self._say(f"{op}, {whole.dtype}, {tuple(whole.shape)}")
        if whole.numel() and self._world_size > 1:
            self._reduce(whole.view(-1), op)
        else:
            self._barrier.wait()
            self._compare_calls()
            self._barrier.wait()

    def _reduce(self, x: Tensor, op: str) -> None:
        """Work through the segments, three of them at a time."""
        segments = x.split(self._segment_bytes // x.element_size())
        count = len(segments)
        works = [
            self._views(x.dtype, len(segment), i % 2).of(segment)
            for i, segment in enumerate(segments)
        ]
        for i in range(count + 2):
            if i < count:
                works[i].give()
            if 1 <= i <= count:
                works[i - 1].combine(op)
            if i >= 2:
                works[i - 2].take()
            if i <= count:
                self._barrier.wait()
            if i == 0:
                self._compare_calls()

    def _views(self, dtype: torch.dtype, length: int, turn: int) -> Views:
        """Return the places for a segment, kept for the next such one."""
        key = (dtype, length, turn)
        if key not in self._places:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            self._places[key] = self._make_views(*key)
        return self._places[key]

    def _make_views(self, dtype: torch.dtype, length: int, turn: int) -> Views:
        """Cut the memory of a turn into the places for ``length`` numbers."""
        rank, k = self._rank, self._world_size
        *slots, result = self._sets[turn].view(dtype)[:, :length]
        low, high = rank * length // k, (rank + 1) * length // k
        sizes = [low, high - low, length - high]
        below, own, above = result.split(sizes)
        given = slots[rank].split(sizes)
        return Views(
            sizes=sizes,
            given=(given[0], given[2]),
            terms=[s[low:high] for r, s in enumerate(slots) if r != rank],
            total=own,
            taken=(below, above),
            rank=rank,
        )

    def _say(self, call: str) -> None:
        """Write down which call this is, for the others to compare."""
        told = call.encode()
        if len(told) > CALL_BYTES:  # its beginning, and a digest of all
            digest = hashlib.sha256(told).hexdigest()[:DIGEST_DIGITS]
            end = f"... sha256 {digest}".encode()
            told = told[: CALL_BYTES - len(end)] + end
        self._call = told.ljust(CALL_BYTES)
        start = self._rank * CALL_BYTES
        self._calls[start : start + CALL_BYTES] = self._call

    def _compare_calls(self) -> None:
        """Raise ValueError on all ranks unless all made the same call."""
        calls = bytes(self._calls)
        if calls == self._call * self._world_size:
            return
        self._barrier.wait()  # until all have read them
        told = [
            calls[start : start + CALL_BYTES].decode().rstrip()
            for start in range(0, len(calls), CALL_BYTES)
        ]
        other = next(r for r, call in enumerate(told) if call != told[0])
        raise ValueError(
            "the ranks do not make the same call (rank 0: "
            f"{told[0]}; rank {other}: {told[other]})"
        )


def _check(tensor: Tensor, op: str) -> None:
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(
            "only a dense tensor on the CPU can be shared (device: "
            f"{tensor.device}, layout: {tensor.layout})"
        )
    if op not in COMBINE:
        raise ValueError(
            f"unknown op (op: {op!r}, known: {', '.join(COMBINE)})"
        )
    dtype = tensor.dtype
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"integers have no exact mean (dtype: {dtype})")
    if op in ("max", "min") and dtype.is_complex:
        raise ValueError(f"complex numbers have no order (dtype: {dtype})")


def sum_of_ranks(length: int) -> list[float]:
    """Return the sum of each rank's number, in ``length`` places.

    A function for :func:`dpkit.launch`: the smallest use of
    :class:`SharedAllreduce`.
    """
    x = torch.full((length,), float(dist.get_rank()))
    SharedAllreduce()(x)
    return x.tolist()
