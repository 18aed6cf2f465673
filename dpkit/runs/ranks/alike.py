"""Ranks that are alike: one runs, and stands for all.

Rank 0 runs. At a collective the others contribute what it contributes, at the
moment at which it has arrived::

    rank 0      |call|== goes on ==|wait|
    ranks 1 …   |come|                       with tensors of the same shapes
                |== allreduce ==|            from when rank 0 had called

A library's collective is one kernel on each device, and that of rank 0 is all
there is to simulate (``one_rank``). Messages go between the devices of all,
so that tensors there stand in for those of the others (``stand_ins``). Where
another rank would be done later than rank 0, the ranks are not alike, because
all would wait for it at the next collective.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor

from dpkit.library import LIBRARY
from dpkit.runs.ranks.alike_checks import (
    check_asker,
    check_contribution,
    check_messages,
    check_places,
)
from dpkit.runs.ranks.group import SimGroup
from dpkit.runs.ranks.one_rank import LEAVERS
from dpkit.runs.ranks.pending import Contribution, PendingCollective
from dpkit.runs.ranks.stand_ins import stand_in
from dpkit.runs.ranks.works import SimWork
from dpkit.runs.ranks.world import World
from dpkit.sim.clock import SECOND
from dpkit.sim.devices import simulation
from dpkit.sim.tracing import label

# Where ranks do not divide the elements, chunks differ by an element: 4 bytes
# take 27 picoseconds of an NVLink, and 0.3 nanoseconds of a network.
LATER = 1e-8  # seconds after rank 0 that are not looked at


def tell_of_one(stack: ExitStack, size: int) -> None:
    """Label times and traces "one rank of N" until a stack ends."""
    simulation.whole_clock.stand_for(size)
    stack.callback(simulation.whole_clock.stand_for, 0)
    if simulation.timeline is not None:
        simulation.timeline.label = label()
        simulation.timeline.assumptions.append(
            f"One rank has run, and stands for {size} that do the same."
        )


class AlikeWorld(World):
    """The ranks of a launch of which one runs."""

    def __init__(self, size: int, algorithm: str) -> None:
        super().__init__(size, algorithm, running=1)
        self._sent: deque[PendingCollective] = (
            deque()
        )  # whose ends are to be checked
        self._others = self._times()[1:]

    def go_on(self) -> None:
        """Bring the hosts of all devices to where that of rank 0 is.

        Raises:
            RuntimeError: the program has used the device of another rank.
        """
        times = self._times()
        changed = zip(times[1:], self._others)
        used = [i for i, (a, b) in enumerate(changed, 1) if a != b]
        if used:
            raise RuntimeError(
                "the one rank of those that are alike has used the device of "
                f'another (device: sim:{used[0]}); its own is "sim"'
            )
        # What is issued from now on is issued no earlier, on any device.
        self._others = [max(times[0], time) for time in self._others]
        times[1:] = self._others

    def note(self, collective: PendingCollective) -> None:
        """Take in a collective, to check that all ranks end it together.

        It is checked when the clock has placed it, here or in :meth:`check`.

        Raises:
            RuntimeError: another rank is done later than rank 0, in this
                collective or an earlier one.
        """
        self._sent.append(collective)
        while self._sent and _is_placed(self._sent[0]):
            _check_ends(self._sent.popleft())

    def check(self, with_notes: bool = True) -> None:
        """Raise RuntimeError if the launch has failed.

        So it has, too, if ranks were not alike: see :meth:`note`.

        Args:
            with_notes: Whether it also says the notes of an error.
        """
        try:
            super().check(with_notes)
        except RuntimeError as error:
            errors = self.scheduler.errors.values()
            waited = any(isinstance(e, dist.DistStoreError) for e in errors)
            if self.scheduler.stuck or waited:
                error.add_note("the other ranks are alike, and do not run")
            raise
        self.go_on()
        for collective in self._sent:
            _check_ends(collective)

    def _times(self) -> list[int]:
        return simulation.whole_clock.hosts.python.times


def _is_placed(collective: PendingCollective) -> bool:
    events = collective.ends.values()
    return all(e is None or e.work.end is not None for e in events)


def _check_ends(collective: PendingCollective) -> None:
    """Raise RuntimeError if another rank is done later than rank 0."""
    found = {
        rank: event.mark for rank, event in collective.ends.items() if event
    }
    if not found:
        return
    late = max(found, key=lambda rank: found[rank])
    after = (found[late] - found[0]) / SECOND
    if after > LATER:
        raise RuntimeError(
            f"ranks are not alike in {collective.name}: rank {late} is done "
            f"{1e6 * after:.3g} µs after rank 0; with "
            f'algorithm="{LIBRARY}" all are done together'
        )


class AlikeGroup(SimGroup):
    """A process group of which one rank runs."""

    _world: AlikeWorld

    def __init__(self, options: Any, world: AlikeWorld, rank: int) -> None:
        super().__init__(options, world, rank)
        cluster = simulation.clock.cluster
        check_places(self._ranks, world.size, cluster)
        if world.algorithm != LIBRARY:
            check_messages(self._ranks, world.size, world.algorithm)

    def rank(self) -> int:
        """Return the number of this rank, to PyTorch but not to the program.

        Raises:
            RuntimeError: the program asks, and might do what others do not.
        """
        check_asker()
        return int(self._group_rank)

    def recv_anysource(self, xs: Sequence[Tensor], tag: int = 0) -> SimWork:
        """Refuse it, as any message of a pair.

        Raises:
            NotImplementedError: in any case.
        """
        return self._call_pair(
            1, source=0, target=self._group_rank, tag=tag, xs=xs
        )

    def _call_pair(
        self,
        group_rank: int,
        *,
        source: int,
        target: int,
        tag: int,
        xs: Sequence[Tensor],
    ) -> SimWork:
        kind = "recv" if group_rank else "send"
        raise NotImplementedError(
            "ranks that are alike send nothing from one to another "
            f"({kind}, {source} → {target}), because not all would do the same"
        )

    def _arrive(
        self,
        pending: PendingCollective,
        group_rank: int,
        own: Contribution,
        kind: str,
        how: dict[str, Any],
    ) -> None:
        """Contribute to an operation for all ranks."""
        check_contribution(
            kind, own.tensors, how.get("root", group_rank), group_rank
        )
        self._world.go_on()
        if self._world.algorithm == LIBRARY:
            pending.size = 1
            leave: Callable[..., None] = LEAVERS[kind]
            run = partial(leave, ranks=self._ranks, **how)
            pending.arrive(group_rank, own, run)
            return
        for other, rank in enumerate(self._ranks):
            theirs = own if other == group_rank else stand_in(own, rank, kind)
            super()._arrive(pending, other, theirs, kind, how)
        self._world.note(pending)
