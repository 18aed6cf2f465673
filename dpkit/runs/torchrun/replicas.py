"""Parameters that should be the same on several ranks, and are not.

After each step of an optimizer a rank keeps a number for each parameter. In
the end the numbers of ranks are compared::

    rank 0   17   25   31   46
    rank 1   17   25   33   48     they differ since step 2

Which parameters should be the same?  Those of DistributedDataParallel, and
those whose gradients the script reduces itself. All others have to be equal
in the beginning; and the script has to be data-parallel: there is a wrapper,
or a DistributedSampler, and no layer sends anything in forward. Parameters
that differ for a time, until they are averaged, are no replicas: local SGD and
DiLoCo do that, and may average for the first time after the last step.
"""

import sys
from array import array
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data.distributed import DistributedSampler
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from dpkit.runs.forked.group import ForkedGroup
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.parameter_names import ParameterNames
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced
from dpkit.sim.containers import tensors_in
from dpkit.sim.devices import simulation
from dpkit.sim.tensors import plain

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MOST_LISTED = 3  # times in a step that gradients are listed by their memory

# (2, False): after step 2; (2, True): before the next one.
Moment = tuple[int, bool]


class Parameter(NamedTuple):
    """What is known of a parameter of an optimizer."""

    name: str  # "" for one that has no replica
    shape: tuple[int, ...]
    ranks: tuple[int, ...]  # that average its gradient; none if unknown


@dataclass
class Steps:
    """The parameters of an optimizer, and a number for each, by time."""

    parameters: list[Parameter] = field(default_factory=list)
    num_bytes: int = 0  # of all of them
    numbers: dict[Moment, "array[int]"] = field(default_factory=dict)
    # Steps before which no wrapper has sent gradients.
    unsent: set[int] = field(default_factory=set)
    # Whether so much is reduced after the last step that it may be them.
    are_reduced_last: bool = False


class KeptReplicas(NamedTuple):
    """What a rank has kept."""

    optimizers: list[Steps]
    is_data_parallel: bool
    is_model_parallel: bool


class Replicas(Watcher):
    """Replicas that differ."""

    looks_for = "replicas whose parameters differ"
    needs_values = needs_ranks = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._names = ParameterNames()
        # Those that have no replica by right.
        self._own: Any = WeakTensorKeyDictionary()
        self._ranks: Any = WeakTensorKeyDictionary()  # that average it
        self._steps: Any = WeakIdKeyDictionary()  # an optimizer -> its Steps
        self._kept: list[Steps] = []
        self._inside: list[Optimizer] = []  # steps that have begun
        self._groups: set[str] = set()  # of DistributedDataParallel
        self._has_sampler = False
        self._has_wrapper = False
        self._is_model_parallel = False
        # Since the last step:
        self._sent_by_wrapper = False
        self._sent_by_script = 0  # bytes
        self._reduced_by_script = 0  # bytes of these
        self._gradients: dict[int, torch.Tensor] = {}
        self._times_listed = 0

    def begin(self, stack: ExitStack) -> None:
        """Look at wrappers, samplers, modules and steps of optimizers."""
        if simulation.backing.type == "meta":
            return
        init: Any = DistributedDataParallel.__init__
        iterate: Any = DistributedSampler.__iter__

        def wrapped(model: Any, *args: Any, **kwargs: Any) -> None:
            init(model, *args, **kwargs)
            self._wrapped(model)

        def sampled(sampler: Any) -> Any:
            self._has_sampler = True
            return iterate(sampler)

        for owner, name, new in (
            (DistributedDataParallel, "__init__", wrapped),
            (DistributedSampler, "__iter__", sampled),
        ):
            stack.callback(replaced(owner, name, new).apply())
        before: Any = self._before_step
        after: Any = self._after_step
        for hook in (
            register_module_forward_pre_hook(self._learn_names),
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(after),
        ):
            stack.callback(hook.remove)

    def for_comparison(self) -> KeptReplicas:
        """Return what other ranks are compared with."""
        for steps in self._kept:
            if 2 * self._sent_by_script >= steps.num_bytes > 0:
                steps.numbers.popitem()  # they may be averaged after it
            self._judge_reduced(steps)
        return KeptReplicas(
            self._kept,
            self._has_sampler or self._has_wrapper or bool(self._ranks),
            self._is_model_parallel,
        )

    # -- which parameters there are

    def _wrapped(self, model: DistributedDataParallel) -> None:
        """Note the parameters whose gradients a wrapper averages."""
        self._has_wrapper = True
        group: Any = model.process_group
        self._groups.add(group.group_name)
        ranks = tuple(dist.get_process_group_ranks(group))
        ignored = model.parameters_to_ignore
        for name, p in model.module.named_parameters():
            self._ranks[p] = ranks
            if name in ignored:
                self._own[p] = True

    def _learn_names(self, module: nn.Module, inputs: Any) -> None:
        """Name the parameters of a module that has not been called before."""
        if not self._names.learn(module):
            return
        for part in module.modules():
            if isinstance(part, FSDPModule):
                self._has_wrapper = True
            if isinstance(part, FullyShardedDataParallel):
                self._has_wrapper = True
                for p in part.parameters():
                    self._own[p] = True  # a part, on each rank another

    def _described(self, p: torch.Tensor) -> Parameter:
        name = self._names.name_of(p) or ""
        is_own = p in self._own or isinstance(p, DTensor)
        if is_own or p.device.type != "sim":
            name = ""
        return Parameter(name, tuple(p.shape), self._ranks.get(p, ()))

    # -- steps

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._inside.append(optimizer)
        if len(self._inside) > 1:  # an optimizer in another
            return
        steps = self._steps.get(optimizer)
        if steps is None:
            steps = self._steps[optimizer] = Steps()
            self._kept.append(steps)
        done = max((step for step, _ in steps.numbers), default=0)
        if not done or self._sent_by_script or steps.are_reduced_last:
            self._keep(optimizer, (done, True))
        if not self._sent_by_wrapper:
            steps.unsent.add(done + 1)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if optimizer in self._inside:
            del self._inside[self._inside.index(optimizer) :]
        if self._inside or optimizer not in self._steps:
            return
        steps = self._steps[optimizer]
        done = max(step for step, _ in steps.numbers)
        self._keep(optimizer, (done + 1, False))
        for other in self._kept:  # such as those that step inside a round
            self._judge_reduced(other)
        steps.are_reduced_last = False
        self._sent_by_wrapper = False
        self._sent_by_script = 0
        self._reduced_by_script = 0
        self._times_listed = 0
        self._gradients.clear()

    def _judge_reduced(self, steps: Steps) -> None:
        """Note whether what was reduced last may be the parameters."""
        if 2 * self._reduced_by_script >= steps.num_bytes > 0:
            steps.are_reduced_last = True

    def _keep(self, optimizer: Optimizer, when: Moment) -> None:
        """Keep a number for each parameter."""
        all_ = [p for g in optimizer.param_groups for p in g["params"]]
        steps = self._steps[optimizer]
        steps.parameters = list(map(self._described, all_))
        steps.num_bytes = sum(p.nbytes for p in all_)
        with torch.no_grad(), _disable_current_modes():
            steps.numbers[when] = array(
                "q",
                (
                    number_of(p) if known.name else 0
                    for p, known in zip(all_, steps.parameters)
                ),
            )

    # -- what is sent

    def called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        """See whether gradients are reduced, or layers send something."""
        if call.kind == "barrier":
            return
        if call.kind in ("message", "all_to_all"):
            self._is_model_parallel = True
        sender = sender_of_call()
        if sender == "layer":
            self._is_model_parallel = True
        in_backward = simulation.clock.hosts.in_backward
        if in_backward and group.group_name in self._groups:
            self._sent_by_wrapper |= call.kind == "allreduce"
        elif sender == "script":
            sent = list(tensors_in(tensors))
            self._sent_by_script += sum(x.nbytes for x in sent)
            if call.kind == "allreduce":
                sent = self._link(sent, group.ranks)
            if call.kind in ("allreduce", "broadcast"):
                self._reduced_by_script += sum(x.nbytes for x in sent)

    def _link(
        self, tensors: list[torch.Tensor], ranks: tuple[int, ...]
    ) -> list[torch.Tensor]:
        """Note the parameters whose gradients are reduced by the script.

        Returns:
            The tensors that are no such gradients.
        """
        others = []
        for x in tensors:
            memory = _memory(x)
            if memory not in self._gradients:
                self._list_gradients()
            p = self._gradients.get(memory)
            if p is not None and p.grad is not None:
                self._ranks.setdefault(p, ranks)
            else:
                others.append(x)
        return others

    def _list_gradients(self) -> None:
        """List the gradients that there are by their memory."""
        if self._times_listed == _MOST_LISTED:
            return
        self._times_listed += 1
        self._gradients = {
            _memory(p.grad): p
            for p in self._names.known()
            if p.grad is not None
        }

    # -- in the end

    @classmethod
    def compare(cls, kept: Mapping[int, KeptReplicas]) -> list[str]:
        """Return a sentence for each optimizer whose replicas differ."""
        if any(one.is_model_parallel for one in kept.values()):
            are_loose = False
        else:
            are_loose = all(one.is_data_parallel for one in kept.values())
        count = min(len(one.optimizers) for one in kept.values())
        lines = []
        for i in range(count):
            steps = {rank: one.optimizers[i] for rank, one in kept.items()}
            lines += _compare_optimizer(steps, are_loose)
        return list(dict.fromkeys(lines))


class Apart(NamedTuple):
    """Since when a parameter of a rank differs from that of another."""

    since: int  # a step
    position: int  # among the parameters of the optimizer
    rank: int
    other: int
    parameter: Parameter


def _compare_optimizer(
    steps: Mapping[int, Steps], are_loose: bool
) -> list[str]:
    """Return a sentence if the parameters of an optimizer differ."""
    found = [
        apart
        for rank, own in steps.items()
        for i in range(len(own.parameters))
        if (apart := _apart(steps, rank, i, are_loose=are_loose)) is not None
    ]
    if not found:
        return []
    first = min(found)
    since = [one for one in found if one.since == first.since]
    ranks = sorted({one.rank for one in since})
    names = {one.position for one in since}
    listed = ", ".join(map(str, ranks))
    whose = (
        f"rank {listed}'s parameters differ"
        if len(ranks) == 1
        else f"parameters of ranks {listed} differ"
    )
    when = f"since step {first.since}"
    if not first.since:
        when = "already before the first step"
    named = sum(bool(p.name) for p in steps[first.rank].parameters)
    return [
        f"{whose} from rank {first.other}'s {when}, first in "
        f"{first.parameter.name} {first.parameter.shape}, in {len(names)} of "
        f"{named}; {_why(first, steps)}"
    ]


def _apart(
    steps: Mapping[int, Steps], rank: int, position: int, *, are_loose: bool
) -> Apart | None:
    """Return since when a parameter differs from that of the first rank."""
    own = steps[rank]
    parameter = own.parameters[position]
    of_group = [r for r in parameter.ranks or steps if r in steps]
    other = min(of_group, default=rank)
    theirs = steps[other]
    if not parameter.name or other == rank:
        return None
    if len(theirs.parameters) != len(own.parameters):
        return None
    their = theirs.parameters[position]  # which may have another name there
    if not their.name or their[1:] != parameter[1:]:
        return None
    moments = sorted(own.numbers.keys() & theirs.numbers.keys())
    equal = [
        own.numbers[m][position] == theirs.numbers[m][position]
        for m in moments
    ]
    if all(equal) or not (parameter.ranks or (are_loose and equal[0])):
        return None
    first = equal.index(False)
    if any(equal[first:]):  # they are made equal from time to time
        return None
    if own.are_reduced_last and not parameter.ranks:  # or once, in the end
        return None
    return Apart(
        moments[first][0],
        position=position,
        rank=rank,
        other=other,
        parameter=parameter,
    )


def _why(first: Apart, steps: Mapping[int, Steps]) -> str:
    if not first.parameter.ranks:
        steps_done = max(s for s, _ in steps[first.rank].numbers)
        return (
            "no wrapper has them, and nothing was seen that averages their "
            f"gradients, or the parameters themselves (steps: {steps_done}); "
            "a script that averages parameters later, as local SGD and "
            "DiLoCo do, shows this in a longer run"
        )
    if first.since in steps[first.rank].unsent and first.since:
        return (
            "no gradients were sent in backward before that step: is "
            "model.module called in place of the model, or is no_sync() "
            "around each backward?"
        )
    if first.since == 0:
        return (
            "something changes them after the model is wrapped, on some ranks "
            "alone, such as a checkpoint that one rank loads; or nothing has "
            "made them equal"
        )
    return (
        "something changes them or their gradients on some ranks alone, such "
        "as a scale, an optimizer's state, or what follows if rank == 0"
    )


def number_of(x: torch.Tensor) -> int:
    """Return a number of 64 bits that is the same for the same values.

    That is the sum of its bits as integers of 64 bits, which is exact. As by
    ``==``, 0.0 and -0.0 are the same; and so is NaN, which is not by ``==``.
    """
    values = plain(x).detach()
    if values.is_complex():
        values = torch.view_as_real(values)
    if values.nbytes > values.untyped_storage().nbytes():
        return 0  # its memory is given back
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    flat = values.permute(order).reshape(-1)  # as it lies in memory
    # Adding 0 makes 0.0 of -0.0; float8 cannot be added to.
    flat = flat.clone() if flat.itemsize == 1 else flat + 0
    per_integer = 8 // flat.itemsize
    end = flat.numel() // per_integer * per_integer
    rest = flat[end:].view(_INTEGERS[flat.itemsize])
    # Sums of torch drop what is above 64 bits, too.
    return int(flat[:end].view(torch.int64).sum() + rest.sum())


def _memory(x: torch.Tensor) -> int:
    return int(plain(x).untyped_storage()._cdata)


def sender_of_call() -> str:
    """Return who calls a collective: "layer", "wrapper" or "script".

    A layer is one of the program, or what autograd calls for it. PyTorch has
    layers that send and are replicas, such as SyncBatchNorm.
    """
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "backward" and "ctx" in code.co_varnames:
            if not code.co_filename.endswith("modules/_functions.py"):
                return "layer"
        elif code.co_name == "forward" and code.co_varnames[:1] == ("self",):
            module = frame.f_locals["self"]
            if isinstance(module, DistributedDataParallel):
                return "wrapper"
            kind = type(module).__module__
            if isinstance(module, nn.Module) and not kind.startswith("torch."):
                return "layer"
        frame = frame.f_back
    return "script"
