"""A process group of the backend "sim", in the process of a rank.

The parent has another one for each rank and group, a ``SimGroup``, which
performs what is called here.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dpkit.runs.forked.nccl_rules import (
    NCCL_ALONE,
    check_on_cpu,
    seconds_allowed,
)
from dpkit.runs.forked.packing import Packed
from dpkit.runs.forked.requests import Requests
from dpkit.runs.ranks.rank_group import CollectiveCall, RankGroup
from dpkit.runs.ranks.works import RankWork
from dpkit.sim.containers import tensors_in
from dpkit.sim.graphs import check_no_message
from dpkit.sim.streams import check_rank, thread
from dpkit.sim.tensors import plain


class OpenCall:
    """An operation that this rank has called, until it takes out the result.

    Args:
        requests: What the rank asks the parent.
        number: That of the call, among all of the rank.
        call: What is called.
        tensors: What this rank contributes.
    """

    def __init__(
        self,
        requests: Requests,
        number: int,
        call: CollectiveCall,
        tensors: Any,
    ) -> None:
        self._requests = requests
        self.number = number
        self.is_over = False
        taken, given = taken_and_given(call, tensors)
        self._memory = _memory_of(tensors)
        self._taken = set(map(id, tensors_in(taken)))
        sent = set(map(id, tensors_in(given)))
        with torch.no_grad(), _disable_current_modes():
            self._packed = Packed(tensors, lambda x: id(x) in sent)
        self.parcel = self._packed.parcel

    def uses(self, tensors: Any) -> bool:
        """Return whether some tensors share memory with those of this call.

        What is called with these has to wait, as in a stream.
        """
        return not self._memory.isdisjoint(_memory_of(tensors))

    def finish(self, known: list[bool]) -> None:
        """Take out what the operation has left.

        Args:
            known: Whether the values of each tensor are known now.
        """
        self.is_over = True
        with torch.no_grad(), _disable_current_modes():
            self._packed.take_out(lambda x: id(x) in self._taken, known)
        del self._packed, self.parcel

    def __del__(self) -> None:
        self._requests.add_later("forget_call", self.number)


def _memory_of(tensors: Any) -> set[int]:
    """Return where the memory is that tensors lie in."""
    return {plain(x).untyped_storage()._cdata for x in tensors_in(tensors)}


def taken_and_given(call: CollectiveCall, tensors: Any) -> tuple[Any, Any]:
    """Return the tensors that an operation writes to, and those it reads."""
    if call.kind == "message":
        return ([], tensors) if call.end.group_rank == 0 else (tensors, [])
    if call.kind in ("broadcast", "reduce"):
        is_root = call.how["root"] == call.end.group_rank
        is_written = is_root == (call.kind == "reduce")
        return (tensors if is_written else []), tensors
    if call.kind == "allreduce":  # in place
        return tensors, tensors
    if call.kind == "barrier":
        return [], []
    taken, given = tensors
    return taken, given


# Called before an operation with the group, what is called, and the tensors.
Observer = Callable[["ForkedGroup", CollectiveCall, Any], None]


class Calls:
    """The operations of a rank, of all its groups."""

    def __init__(self, requests: Requests) -> None:
        self.observers: list[Observer] = []
        self._requests = requests
        self.numbers = count()
        self._open: dict[int, OpenCall] = {}

    def make(
        self, group: "ForkedGroup", call: CollectiveCall, tensors: Any
    ) -> OpenCall:
        """Call an operation of a group; the parent hears of it at once."""
        for observe in self.observers:
            observe(group, call, tensors)
        self.wait([one for one in self._open.values() if one.uses(tensors)])
        with self._requests.whole:
            number = next(self.numbers)
            made = OpenCall(self._requests, number, call, tensors)
            self._open[number] = made
            self._requests.add("call", group.number, number, call, made.parcel)
            self._requests.send()
        return made

    def wait_for_all(self) -> None:
        """Wait for all operations: the host waits for its device."""
        self.wait(list(self._open.values()))

    def wait(self, calls: Sequence[OpenCall]) -> None:
        """Wait until all ranks have come to some operations.

        The result is taken out, and so is that of others that are over.
        """
        if all(call.is_over for call in calls):
            return
        numbers = [call.number for call in calls]
        with self._requests.whole:
            over = self._requests.ask("wait_for", numbers)
            for number, known in over:
                self._open.pop(number).finish(known)


class ForkedWork(RankWork[OpenCall]):
    """What a rank waits for that is a process."""

    def __init__(
        self, group: "ForkedGroup", calls: Sequence[OpenCall], out: Any
    ) -> None:
        super().__init__(group.rank_of_all, calls, out)
        self._group = group
        self.numbers = [call.number for call in calls]

    def _let_all_arrive(self) -> None:
        check_rank(self._rank)
        self._group.calls.wait(self.pending)

    def _wait_in_stream(self) -> None:
        self._group.requests.add("wait_in_stream", self.numbers)

    def is_completed(self) -> bool:
        """Return whether they are over, at this time of the rank's clock."""
        check_rank(self._rank)
        if not self._group.requests.ask("is_completed", self.numbers):
            return False
        self._let_all_arrive()
        return True


class ForkedGroup(RankGroup[OpenCall]):
    """A process group that checks what a rank calls, and asks for it.

    Args:
        options: Those of PyTorch.
        requests: What the rank asks the parent.
        calls: The operations of the rank.
        rank: The number of the rank.
        number: The number of the group, among all of the rank.
    """

    def __init__(
        self,
        options: Any,
        *,
        requests: Requests,
        calls: Calls,
        rank: int,
        number: int,
    ) -> None:
        super().__init__(options, rank)
        self.requests = requests
        self.calls = calls
        self.ranks = self._ranks  # by their numbers among all
        self.rank_of_all = rank
        self.number = number
        self._is_told = False
        self._is_nccl = thread.asked in NCCL_ALONE
        timeout = getattr(options, "timeout", None)
        self._allowed = seconds_allowed(thread.asked, timeout)

    def monitored_barrier(
        self, timeout: Any = None, wait_all_ranks: bool = False
    ) -> bool:
        """Wait for a barrier of the CPU, which NCCL alone has not."""
        if self._is_nccl:
            raise ValueError(
                "monitored_barrier requires a group with a CPU-capable "
                "backend (e.g. GLOO); dist.barrier() is one of NCCL"
            )
        return super().monitored_barrier(timeout, wait_all_ranks)

    def _perform(
        self, call: CollectiveCall, tensors: Any, outs: Any
    ) -> ForkedWork:
        check_no_message()
        device = self._device_of(tensors)
        if self._is_nccl and device.type == "cpu" and tensors_in(tensors):
            check_on_cpu(self.rank_of_all)
        if not self._is_told:  # PyTorch has described it by now
            self._is_told = True
            self.requests.add(
                "new_group",
                self.number,
                {
                    "group_id": self._name,
                    "group_rank": self._group_rank,
                    "group_size": self._size,
                    "global_ranks_in_group": self._ranks,
                },
                self.group_desc,
                self._allowed,
            )
        made = self.calls.make(self, call, tensors)
        return self._work([made], outs)

    def _work(self, called: Sequence[OpenCall], outs: Any) -> ForkedWork:
        return ForkedWork(self, called, outs)
