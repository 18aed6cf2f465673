"""Mistakes that a rank can see while its script runs.

A watcher looks on, and at the end says what it has found. ``WATCHERS`` has the
classes of those that a run begins with; a program may add its own to the list
before it calls :func:`dpkit.torchrun.launching.run_on_ranks`.
"""

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.distributed import DistributedSampler

from dpkit.forked.group import ForkedGroup
from dpkit.ranks.group import CollectiveCall
from dpkit.sim import places
from dpkit.sim.changes.change import replaced
from dpkit.sim.devices import names as device_names
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.memory.accounting import Memory, tensors_in
from dpkit.sim.memory.small_integers import values_of
from dpkit.sim.tensors.behaviour import plain

MOST_KEPT = 3  # calls of the model that are looked at
SAME_INPUTS = (
    "all ranks give the model the same examples; a DistributedSampler gives "
    "each rank its own"
)
SAME_RANDOM_NUMBERS = (
    "all ranks draw the same random numbers in forward, as by dropout; "
    "torch.manual_seed(seed + rank), after the model is made, draws others"
)
_WRAPPERS = (DistributedDataParallel, FSDPModule, FullyShardedDataParallel)


class Watcher:
    """Looks on in one rank; what it does not need it leaves out.

    Args:
        rank: The number of the rank.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.findings: dict[str, str] = {}  # a sentence -> the line it is of

    def kept(self) -> dict[str, list[int]]:
        """Return numbers that are found if they are equal on all ranks.

        By the sentence that says what was found.
        """
        return {}

    def find(self, sentence: str) -> None:
        """Note what was found, and the line of the script that runs now."""
        self.findings.setdefault(sentence, places.here().described())

    def begin(self, stack: ExitStack) -> None:
        """Begin to look on; the stack ends with the script."""

    def called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        """See an operation of a group before it is called."""

    def stepped(self, optimizer: Optimizer) -> None:
        """See that an optimizer has done a step."""


class Pass(NamedTuple):
    """A pass of a sampler through the data."""

    sampler: Any
    epoch: int
    line: str  # of the script


class SameOrder(Watcher):
    """A sampler that goes through the data in one order in every epoch.

    Passes count in which an optimizer steps: one that evaluates, or that only
    looks at a batch, may have the order of another.
    """

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        # The last, until an optimizer steps, or it ends.
        self._begun: Pass | None = None
        # A sampler -> the epoch of its last pass that has trained.
        self._trained: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def begin(self, stack: ExitStack) -> None:
        """Look at each pass of a ``DistributedSampler``."""
        iterate: Any = DistributedSampler.__iter__

        def watched(sampler: Any) -> Any:
            line = places.here().described()
            begun = self._begun = Pass(sampler, sampler.epoch, line)
            return self._until_end(begun, iterate(sampler))

        change = replaced(DistributedSampler, "__iter__", watched)
        stack.callback(change.apply())

    def _until_end(self, begun: Pass, indices: Iterator[int]) -> Iterator[int]:
        yield from indices
        if self._begun is begun:
            self._begun = None

    def stepped(self, optimizer: Optimizer) -> None:
        """See that the pass that has begun last is one that trains."""
        if self._begun is None:
            return
        sampler, epoch, line = self._begun
        self._begun = None
        if sampler.shuffle and self._trained.get(sampler) == epoch:
            sentence = (
                "a DistributedSampler passes through the data in the same "
                f"order again (epoch {epoch} twice); "
                "sampler.set_epoch(epoch) shuffles it anew"
            )
            self.findings.setdefault(sentence, line)
        self._trained[sampler] = epoch


class ForeignMemory(Watcher):
    """Memory that a rank keeps on the device of another."""

    def begin(self, stack: ExitStack) -> None:
        """Look at what is allocated on other devices."""
        hold = Memory.hold

        def watched(memory: Memory, backing: Any, device: int) -> None:
            if device != self.rank:
                taken = device_names.shown(torch.device("sim", device))
                self.find(
                    f"rank {self.rank} takes memory on {taken}, which "
                    "is another rank's device (a map_location, or a missing "
                    "torch.cuda.set_device?)"
                )
            hold(memory, backing, device)

        stack.callback(replaced(Memory, "hold", watched).apply())


class RepeatedGradients(Watcher):
    """Gradients that are sent several times for one step of an optimizer."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._models: list[DistributedDataParallel] = []
        self._sent = 0  # bytes of gradients since the last step
        self._steps = 0

    def begin(self, stack: ExitStack) -> None:
        """Look at models that are wrapped, and at the steps of optimizers."""
        init: Any = DistributedDataParallel.__init__

        def noted(model: Any, *args: Any, **kwargs: Any) -> None:
            init(model, *args, **kwargs)
            self._models.append(model)

        change = replaced(DistributedDataParallel, "__init__", noted)
        stack.callback(change.apply())
        hook: Any = self._compare
        stack.callback(register_optimizer_step_post_hook(hook).remove)

    def called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        """Count what DistributedDataParallel sends in backward."""
        in_backward = simulation.clock.hosts.in_backward
        groups = {model.process_group.group_name for model in self._models}
        is_theirs = group.group_name in groups and call.kind == "allreduce"
        if is_theirs and in_backward:
            self._sent += sum(x.nbytes for x in tensors_in(tensors))

    def _compare(self, *_: Any) -> None:
        """Compare what was sent with the gradients that there are."""
        there = sum(
            p.nbytes
            for model in self._models
            for p in model.parameters()
            if p.requires_grad
        )
        times = round(self._sent / there) if there else 0
        self._sent = 0
        self._steps += 1
        if times > 1 and self._steps > 1:
            self.find(
                f"gradients are sent {times} times for one step of the "
                "optimizer; with micro-batches, model.no_sync() around all "
                "but the last sends them once"
            )


class SameOnAllRanks(Watcher):
    """What data parallelism needs to differ between ranks, and may not.

    It keeps a number for what the wrapped model is given to train on, and one
    for the random numbers that its forward draws. Ranks are compared in the
    end.
    """

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._model: nn.Module | None = None  # the first that is called
        self._state = 0  # of the random numbers, before its forward
        self._inputs: list[int] = []
        self._random: list[int] = []

    def begin(self, stack: ExitStack) -> None:
        """Look at the forward of models that are wrapped."""
        before = register_module_forward_pre_hook(self._before)
        stack.callback(before.remove)
        after = register_module_forward_hook(self._after)
        stack.callback(after.remove)

    def kept(self) -> dict[str, list[int]]:
        """Return a sentence for what is not to be equal on all ranks.

        Each has the numbers that were kept of it.
        """
        return {
            SAME_INPUTS: self._inputs,
            SAME_RANDOM_NUMBERS: self._random,
        }

    def _before(self, module: nn.Module, inputs: Any) -> None:
        if self._model is None and isinstance(module, _WRAPPERS):
            self._model = module
        if module is not self._model or not module.training:
            return
        self._state = _number_of([torch.get_rng_state()])
        if len(self._inputs) < MOST_KEPT:
            given = [values_of(plain(x)) for x in tensors_in(inputs)]
            known = [values for values in given if values is not None]
            if known and len(known) == len(given):
                self._inputs.append(_number_of(known))

    def _after(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        is_looked_at = module is self._model and module.training
        if is_looked_at and len(self._random) < MOST_KEPT:
            state = _number_of([torch.get_rng_state()])
            if state != self._state:  # it has drawn some
                self._random.append(self._state)


def _number_of(tensors: list[torch.Tensor]) -> int:
    """Return a number by which tensors are known again."""
    number = 0
    for x in tensors:
        values = x.detach().contiguous().reshape(-1).view(torch.uint8)
        number = zlib.crc32(values.numpy().tobytes(), number)
    return number


WATCHERS: list[type[Watcher]] = [
    *(SameOrder, ForeignMemory, RepeatedGradients, SameOnAllRanks),
]
