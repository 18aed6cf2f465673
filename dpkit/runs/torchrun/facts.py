"""What is counted in the process of a rank while a script runs."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from dpkit.runs.forked.group import ForkedGroup
from dpkit.runs.forked.running import ForkedRank
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim import torch_sim
from dpkit.sim.changes import replaced
from dpkit.sim.clock import Block
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import simulation
from dpkit.sim.streams import SimEvent, current_stream
from dpkit.sim.tracing import block_of


class EnoughSteps(BaseException):
    """Raised in a rank after the steps that were asked for."""


class StepEnd(NamedTuple):
    """The end of a step of the optimizer."""

    mark: int  # when the device had done it, in picoseconds
    peak_bytes: int  # the most memory until then


class KindOfCalls(NamedTuple):
    """Operations of one kind, in one group."""

    kind: str  # "allreduce"
    ranks: tuple[int, ...]  # of the group; none for messages
    calls: int
    num_bytes: int  # that the rank has contributed


class RankFacts(NamedTuple):
    """What one rank has counted."""

    steps: list[StepEnd]
    peak_bytes: int
    blocks: list[Block]
    traffic: list[KindOfCalls]


def is_on_device(optimizer: Optimizer) -> bool:
    """Return whether an optimizer changes what lies on a device."""
    return any(
        p.device.type == "sim"
        for group in optimizer.param_groups
        for p in group["params"]
    )


class RankCounter:
    """Counts what a rank does.

    Args:
        here: The rank.
        most_steps: How many steps of the optimizer it does; None: all.
        watchers: They see what is counted.
    """

    def __init__(
        self,
        here: ForkedRank,
        most_steps: int | None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._watchers = watchers
        self._here = here
        self._most = most_steps
        # The first that has stepped, before all others one of a device.
        self._counted: Optimizer | None = None
        self._ends: list[tuple[SimEvent, int]] = []
        self._calls: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._bytes: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._num_steps = 0  # of all optimizers
        # Optimizers that are in a step. One may call another, and has done its
        # own step later: ZeroRedundancyOptimizer sends parameters first.
        self._stepping: list[Optimizer] = []

    def begin(self, stack: ExitStack) -> None:
        """Count until a stack ends."""
        simulation.memory.blocks = []
        stack.callback(setattr, simulation.memory, "blocks", None)
        before: Any = self._begin_step
        stack.callback(register_optimizer_step_pre_hook(before).remove)
        after: Any = self._stepped
        stack.callback(register_optimizer_step_post_hook(after).remove)
        scaled = self._telling_of_skipped(GradScaler.step)
        stack.callback(replaced(GradScaler, "step", scaled).apply())
        self._here.calls.observers.append(self._called)
        for watcher in self._watchers:
            watcher.begin(stack)

    def _called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        for watcher in self._watchers:
            watcher.called(group, call, tensors)
        if call.kind == "message" and call.end.group_rank == 1:
            return  # it is received, and counts where it is sent
        is_pair = isinstance(tensors, tuple) or call.kind == "all_to_all"
        given = tensors[1] if is_pair else tensors
        of = call.kind, () if call.end.pair else group.ranks
        self._calls[of] += 1
        self._bytes[of] += sum(x.nbytes for x in tensors_in(given))

    def _telling_of_skipped(self, step: Any) -> Any:
        """Return a step of a scaler that tells watchers if it is left out."""

        @wraps(step)
        def run(
            scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any
        ) -> Any:
            before = self._num_steps
            result = step(scaler, optimizer, *args, **kwargs)
            if self._num_steps == before:
                for watcher in self._watchers:
                    watcher.skipped(optimizer)
            return result

        return run

    def _begin_step(self, optimizer: Optimizer, *_: Any) -> None:
        if optimizer in self._stepping:  # its last step has failed
            del self._stepping[self._stepping.index(optimizer) :]
        self._stepping.append(optimizer)

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        del self._stepping[self._stepping.index(optimizer) :]
        if self._stepping:
            return
        self._num_steps += 1
        if self._counted is None or (
            is_on_device(optimizer) and not is_on_device(self._counted)
        ):
            self._counted = optimizer
            self._ends.clear()
        if self._counted is not optimizer:
            return
        for watcher in self._watchers:
            watcher.stepped(optimizer)
        device = torch.device("sim", self._here.rank)
        end = current_stream(device).record_event()
        peak = torch_sim.max_memory_allocated(device)
        self._ends.append((end, peak))
        if len(self._ends) == self._most:
            raise EnoughSteps

    def facts(self, are_timed: bool = True) -> RankFacts:
        """Return what was counted.

        Args:
            are_timed: Whether the clock is asked when each step has ended.
        """
        marks = [end.mark if are_timed else 0 for end, _ in self._ends]
        memory = simulation.memory
        own = self._here.rank
        made = [b for b in memory.blocks or [] if b.device == own]
        return RankFacts(
            steps=[
                StepEnd(mark or 0, peak)
                for mark, (_, peak) in zip(marks, self._ends)
            ],
            peak_bytes=memory.peak[own],
            blocks=[block_of(b, 0, memory.order) for b in made],
            traffic=[
                KindOfCalls(*of, self._calls[of], self._bytes[of])
                for of in self._calls
            ],
        )
