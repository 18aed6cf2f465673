"""Mistakes that a rank can see while its script runs.

A watcher looks on, and at the end says what it has found. ``WATCHERS`` has the
classes of those that a run begins with; a program may add its own to the list
before it calls :func:`dpkit.runs.torchrun.launching.run_on_ranks`.
"""

import os
import zlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

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

from dpkit.runs.forked.group import ForkedGroup
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.local_rank import watched_options
from dpkit.sim import places
from dpkit.sim.changes import replaced
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import names as device_names
from dpkit.sim.devices import simulation
from dpkit.sim.memory import Memory, values_of
from dpkit.sim.tensors import plain

_MOST_KEPT = 3  # calls of the model that are looked at
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

    looks_for = ""  # what it would find, in the words of the report
    needs_values = False  # whether it finds nothing without values
    needs_ranks = False  # whether it compares ranks
    needs_end = False  # whether it compares what is known at the end alone

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.findings: dict[str, str] = {}  # a sentence -> the line it is of

    def kept(self) -> dict[str, list[int]]:
        """Return numbers that are found if they are equal on all ranks.

        By the sentence that says what was found.
        """
        return {}

    def for_comparison(self) -> Any:
        """Return what is compared with that of other ranks; None: nothing."""
        return None

    @classmethod
    def compare(cls, kept: Mapping[int, Any]) -> list[str]:
        """Return what is found between ranks.

        Args:
            kept: By the rank, what it has for the comparison.
        """
        return []

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

    def skipped(self, optimizer: Optimizer) -> None:
        """See that a scaler has left out a step, as gradients overflowed."""

    def end(self) -> None:
        """Find what can be found in the end alone."""


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

    looks_for = "the same order of the data in each epoch"

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
                "sampler.set_epoch(epoch) gives each epoch another"
            )
            self.findings.setdefault(sentence, line)
        self._trained[sampler] = epoch


class ForeignMemory(Watcher):
    """Memory that a rank keeps on the device of another."""

    looks_for = "memory on another rank's GPU"

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


class DeviceNotChosen(Watcher):
    """A rank that trains while the GPU of another is the current one."""

    looks_for = "another rank's GPU as the current one"

    def stepped(self, optimizer: Optimizer) -> None:
        """Look at the current device after a step."""
        current = simulation.current_device
        if current != self.rank:
            shown = device_names.shown(torch.device("sim", current))
            self.find(
                f"the current device is {shown}, which is another rank's: "
                "torch.cuda.synchronize(), events, and tensors on plain "
                "'cuda' are of that GPU, until "
                "torch.cuda.set_device(LOCAL_RANK)"
            )


class RepeatedGradients(Watcher):
    """Gradients that are sent several times for one step of an optimizer."""

    looks_for = "gradients that are sent several times for a step"

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

    def skipped(self, optimizer: Optimizer) -> None:
        """Forget what was sent for the step that is left out."""
        self._sent = 0

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


class LocalRankOption(Watcher):
    """A local rank that is read from the command line, where it is not."""

    looks_for = "a wrong option --local_rank"

    def begin(self, stack: ExitStack) -> None:
        """Look at what parsers of arguments return."""
        parse: Any = ArgumentParser.parse_known_args

        def watched(*args: Any, **kwargs: Any) -> Any:
            found = parse(*args, **kwargs)
            right = os.environ.get("LOCAL_RANK")
            given = getattr(found[0], "local_rank", right)
            if str(given) != right and type(found[0]) is Namespace:
                found[0].__class__ = watched_options(self._read, self._changed)
            return found

        change = replaced(ArgumentParser, "parse_known_args", watched)
        stack.callback(change.apply())

    def _read(self, value: object) -> None:
        self.find(_of_local_rank(value))

    def _changed(self, value: object) -> None:
        """Forget a value that was read to be changed."""
        self.findings.pop(_of_local_rank(value), None)


def _of_local_rank(value: object) -> str:
    return (
        f"the script's option --local_rank is {value}, as torchrun does not "
        "give it; LOCAL_RANK in the environment has the number"
    )


class SameFile(Watcher):
    """A file that every rank writes by ``torch.save``."""

    looks_for = "a file that all ranks write"
    needs_ranks = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._files: dict[str, int] = {}  # a path -> how often it was written

    def begin(self, stack: ExitStack) -> None:
        """Look at what is saved under a name."""
        save: Any = torch.save

        def watched(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
            save(value, file, *args, **kwargs)
            if isinstance(file, (str, os.PathLike)):
                path = os.path.abspath(os.fsdecode(file))
                self._files[path] = self._files.get(path, 0) + 1

        stack.callback(replaced(torch, "save", watched).apply())

    def kept(self) -> dict[str, list[int]]:
        """Return a sentence for each file that was written."""
        return {
            f"all ranks write {path} by torch.save, each over the others; "
            "rank 0 alone writes what is the same on all": [count]
            for path, count in self._files.items()
        }


class NeverWritten(Watcher):
    """What a model has from ``to_empty``, and uses before it is given values.

    Until then its memory is full of NaN. To fill it takes no simulated time.
    """

    looks_for = "parameters and buffers that nobody has written to"
    needs_values = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        # The modules, until their first forward.
        self._empty: WeakSet[nn.Module] = WeakSet()

    def begin(self, stack: ExitStack) -> None:
        """Look at ``to_empty``, and at the forward of each module."""
        original: Any = nn.Module.to_empty

        def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            made = original(module, *args, **kwargs)
            of_all = kwargs.get("recurse", True)
            for part in module.modules() if of_all else [module]:
                self._empty.add(part)
                for values in _own_values(part).values():
                    values.fill_(torch.nan)
            return made

        stack.callback(replaced(nn.Module, "to_empty", watched).apply())
        hook = register_module_forward_pre_hook(self._look)
        stack.callback(hook.remove)

    def _look(self, module: nn.Module, inputs: Any) -> None:
        if module not in self._empty:
            return
        self._empty.discard(module)
        for name, values in _own_values(module).items():
            if bool(values.isnan().all()):
                self.find(
                    f"{type(module).__name__}.{name} is used, and nobody has "
                    "written to it since to_empty: on a GPU it has any values"
                )


def _own_values(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the values of a module's parameters and buffers that it holds.

    These are plain tensors of numbers, without those of other modules.
    """
    found = {}
    for name, x in (*module._parameters.items(), *module._buffers.items()):
        values = None if x is None else plain(getattr(x, "_local_tensor", x))
        if values is None or values.is_meta:
            continue
        is_there = 0 < values.nbytes <= values.untyped_storage().nbytes()
        if is_there and values.is_floating_point():
            found[name] = values.detach()
    return found


class SameOnAllRanks(Watcher):
    """What data parallelism needs to differ between ranks, and may not.

    It keeps a number for what the wrapped model is given to train on, and one
    for the random numbers that its forward draws. Ranks are compared in the
    end.
    """

    looks_for = "equal examples, or equal random numbers, on all ranks"
    needs_values = needs_ranks = True

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
        after = register_module_forward_hook(self._after, with_kwargs=True)
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
        if module is self._model:
            self._state = _number_of([torch.get_rng_state()])

    def _after(
        self, module: nn.Module, inputs: Any, named: Any, outputs: Any
    ) -> None:
        if module is not self._model or not module.training:
            return
        if len(self._inputs) < _MOST_KEPT:
            tensors = tensors_in([inputs, named])
            given = [values_of(plain(x)) for x in tensors]
            known = [values for values in given if values is not None]
            if known and len(known) == len(given):
                self._inputs.append(_number_of(known))
        if len(self._random) < _MOST_KEPT:
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
    *(SameOrder, ForeignMemory, DeviceNotChosen, RepeatedGradients),
    *(SameOnAllRanks, LocalRankOption, SameFile, NeverWritten),
]
