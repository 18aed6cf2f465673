"""A process group of ranks that take turns in one process.

The objects of one group, one on each rank, find each other by its name and
its ranks. What PyTorch calls is in ``rank_group``.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from dpkit import streams
from dpkit.runs.ranks.pending import Contribution, PendingCollective
from dpkit.runs.ranks.rank_group import CollectiveCall, PairEnd, RankGroup
from dpkit.runs.ranks.sending import SENDERS
from dpkit.runs.ranks.works import SimWork
from dpkit.runs.ranks.world import World
from dpkit.sim.devices import simulation


class SimGroup(RankGroup[PendingCollective]):
    """A process group of a rank that takes turns with the others.

    Args:
        options: Those of PyTorch.
        world: What the ranks share.
        rank: The number of the rank, among all.
    """

    def __init__(self, options: Any, world: World, rank: int) -> None:
        super().__init__(options, rank)
        self._world = world
        # What the ranks of the group are at. A name alone is not unique.
        self._pending = world.add(self, self._name, self._ranks)
        self._counts: dict[PairEnd, int] = {}  # of operations so far

    def free(self) -> None:
        """Drop every reference to tensors; see ``World.free``."""
        self._pending.clear()
        self._coalesced = None

    @cached_property
    def _channel(self) -> str:
        """The name of the streams that it sends on, which no other has here.

        It is that of its dimension of a mesh, or "world", or "group 3".
        """
        usual = {"default_pg": "world", "undefined": f"group {self._name}"}
        name = self.group_desc.removeprefix("mesh_")
        return self._world.channel_of(
            self._rank, self._name, usual.get(name, name)
        )

    def _perform(
        self, call: CollectiveCall, tensors: Any, outs: Any
    ) -> SimWork:
        """Contribute tensors to an operation; return the work to wait for."""
        end = call.end
        number = self._counts.get(end, -1) + 1
        self._counts[end] = number
        contribution = self._issue(call.kind, tensors)
        pending = self._find_pending(call, number)
        try:
            with torch.no_grad():
                self._arrive(
                    pending, end.group_rank, contribution, call.kind, call.how
                )
        finally:
            if pending.is_over:
                del self._pending[end.pair, number]
        return self._work([pending], outs)

    def _arrive(
        self,
        pending: PendingCollective,
        group_rank: int,
        own: Contribution,
        kind: str,
        how: dict[str, Any],
    ) -> None:
        """Contribute to an operation; the last rank to arrive sends."""
        send: Callable[..., None] = SENDERS[kind]
        run = partial(send, algorithm=self._world.algorithm, **how)
        pending.arrive(group_rank, own, run)

    def _find_pending(
        self, call: CollectiveCall, number: int
    ) -> PendingCollective:
        """Return the operation that a rank calls; the first makes it.

        Raises:
            RuntimeError: the ranks before have called something else.
        """
        pair = call.end.pair
        what = f"{call.kind} {pair}".strip()
        where = f"number {number} of group {self._name}"
        # A pair has other streams than the group.
        channel = f"{self._channel} {pair}".strip().removesuffix(", tag 0")
        new = PendingCollective(
            name=f"{what} {where}",
            call=call.agreed,
            caller=self._rank,
            size=2 if pair else self._size,
            channel=channel,
        )
        pending = self._pending.setdefault((pair, number), new)
        if pending.call != call.agreed:
            raise RuntimeError(
                f"ranks call different operations (rank {pending.caller}: "
                f"{pending.call}, rank {self._rank}: {call.agreed}; {where})"
            )
        return pending

    def _issue(self, kind: str, tensors: Any) -> Contribution:
        """Charge the host of this rank for the call; return its contribution.

        Raises:
            RuntimeError: as for :meth:`_device_of`.
        """
        device = self._device_of(tensors)
        if device.type == "sim":
            simulation.whole_clock.hosts.launch(device.index, kind)
        begin = streams.record_event(device)
        return Contribution(self._rank, tensors, device, begin)

    def _work(self, called: Sequence[PendingCollective], outs: Any) -> SimWork:
        return SimWork(self._world.scheduler, self._rank, called, outs)
