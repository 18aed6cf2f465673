"""What a model is given while a script trains it, to compare two runs by.

Causes differ in these facts: which examples it gets, how many targets count,
which buffers it uses, and how exact its numbers are.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.nn.parallel import DistributedDataParallel

from dpkit.runs.check.digests import (
    Digest,
    components,
    digest,
    direction,
    finite,
)
from dpkit.runs.check.dropout import RandomNumbers
from dpkit.runs.forked.group import ForkedGroup
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.parameter_names import (
    ParameterNames,
    without_wrappers,
)
from dpkit.runs.torchrun.replicas import sender_of_call
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced
from dpkit.sim.containers import tensors_in
from dpkit.sim.memory import values_of
from dpkit.sim.tensors import plain

_INEXACT = (torch.float16, torch.bfloat16)
_LOSSES = ("cross_entropy", "nll_loss")


class Examples(NamedTuple):
    """The examples that a model gets in one forward."""

    width: int  # how many numbers each has; 0 for different shapes
    numbers: list[float]  # one for each, by which it is known again


class StepFacts(NamedTuple):
    """What is kept of one step of the optimizer."""

    examples: list[Examples]  # of each forward
    targets: int  # how many count in losses, of those that may be ignored
    buffers: dict[str, Digest]  # that the last forward has used
    draws: bool  # whether forward draws random numbers, besides dropout's
    normalizes: bool  # whether by the statistics of this rank's batch


class ModelFacts(Watcher):
    """Keeps what the outermost model of a script is given to train on."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.steps: list[StepFacts] = []
        self.batches: list[int] = []  # how many examples it got in a forward
        self.is_flat = False  # whether it has parts of flat shards
        self.is_wrapped = False  # whether a wrapped model was called
        self.sends_in_forward = False  # whether layers of the script do
        self.rounding = torch.finfo(torch.float32).eps
        self._names = ParameterNames()
        self._model: nn.Module | None = None  # the outermost
        self._inner: nn.Module | None = None  # what its wrapper holds
        # What belongs to the step that is being done.
        self._examples: list[Examples] = []
        self._targets = 0
        self._buffers: dict[str, Digest] = {}
        # Components of gradients as backward computes them, before they are
        # averaged; those of the micro-batches of a step are added up.
        self._own: dict[str, list[float]] = {}
        self._random = RandomNumbers()
        self._draws = False
        self._normalizes = False

    def begin(self, stack: ExitStack) -> None:
        """Look at modules and losses, and leave dropout out."""
        self._random.begin(stack)
        before = register_module_forward_pre_hook(self._before)
        stack.callback(before.remove)
        after = register_module_forward_hook(self._after, with_kwargs=True)
        stack.callback(after.remove)
        for name in _LOSSES:
            new = self.counting(getattr(nn.functional, name))
            stack.callback(replaced(nn.functional, name, new).apply())

    def name_of(self, parameter: torch.Tensor) -> str | None:
        """Return the name of a parameter, if a module that has it was used."""
        return self._names.name_of(parameter)

    def take_own(self, name: str) -> list[float]:
        """Return what backward has computed for a parameter, and forget it."""
        return self._own.pop(name, [])

    def stepped(self, optimizer: Any) -> None:
        """Keep what was seen since the last step."""
        self.steps.append(
            StepFacts(
                examples=self._examples,
                targets=self._targets,
                buffers=self._buffers,
                draws=self._draws,
                normalizes=self._normalizes,
            )
        )
        self._examples = []
        self._targets = 0

    def called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        """See whether layers send something."""
        if not self.sends_in_forward:
            self.sends_in_forward = sender_of_call() == "layer"

    def skipped(self, optimizer: Any) -> None:
        """Forget the examples of a step that a scaler has left out."""
        self._examples = []
        self._targets = 0

    def _before(self, module: nn.Module, inputs: Any) -> None:
        self._learn_names(module)
        if module is self._model and module.training:
            self._random.start()
        if self._model and module is self._inner and module.training:
            self._buffers = {
                without_wrappers(name): digest(finite(buffer))
                for name, buffer in self._model.named_buffers()
                if not buffer.is_meta
            }

    def _learn_names(self, module: nn.Module) -> None:
        """Take the names of parameters from modules that are called.

        The first that is trained is the outermost: it calls those inside. An
        encoder that is frozen may be called before.
        """
        new = self._names.learn(module)
        if isinstance(module, DistributedDataParallel):
            self.is_wrapped = True
        for name, p in new:
            if p.requires_grad and not isinstance(p, DTensor):
                p.register_hook(self._keeping_own(name, ref(p)))
        if self._model is None and _is_trained(module):
            self._model = module
            self._inner = _wrapped_in(module)
            self.is_flat = any(
                isinstance(part, FullyShardedDataParallel)
                for part in module.modules()
            )

    def _keep_examples(self, args: Any, named: Any) -> None:
        """Keep a number for each example that the model is given."""
        examples = examples_in(args, named)
        if examples is not None:
            self.batches.append(len(examples.numbers))
            self._examples.append(examples)

    def _keeping_own(self, name: str, p: "ref[nn.Parameter]") -> Any:
        """Return what keeps a gradient as backward has computed it."""

        def keep(gradient: torch.Tensor) -> None:
            if not isinstance(gradient, DTensor):
                found = components(gradient)
                none = [0.0] * len(found)
                owner = p()
                is_new = owner is None or owner.grad is None
                before = none if is_new else self._own.get(name, none)
                self._own[name] = [a + b for a, b in zip(before, found)]

        # By this torch.save says nothing of a hook that it leaves out.
        vars(keep)["__torch_unserializable__"] = True
        return keep

    def _after(
        self, module: nn.Module, inputs: Any, named: Any, outputs: Any
    ) -> None:
        """Note how exact numbers are, and what a rank's batch decides."""
        if module is self._model and module.training:
            self._keep_examples(inputs, named)
            self._draws = self._random.stop() or self._draws
        is_own = isinstance(module, _BatchNorm) and not isinstance(
            module, nn.SyncBatchNorm
        )
        self._normalizes = self._normalizes or (is_own and module.training)
        for x in tensors_in([outputs]):
            if x.dtype in _INEXACT:
                self.rounding = max(self.rounding, torch.finfo(x.dtype).eps)

    def counting(self, loss: Any) -> Any:
        """Return a loss that counts the targets that are not ignored."""
        meaning = signature(loss)

        @wraps(loss)
        def run(*args: Any, **kwargs: Any) -> Any:
            given = meaning.bind(*args, **kwargs).arguments
            targets = given["target"]
            ignored = given.get("ignore_index", -100)
            if torch.is_grad_enabled() and not targets.is_floating_point():
                values = values_of(plain(targets))
                if values is not None:
                    self._targets += int((values != ignored).sum())
            return loss(*args, **kwargs)

        return run


def _wrapped_in(model: nn.Module) -> nn.Module:
    """Return what the first wrapper in a model holds, or the model.

    When that is called, the wrapper has sent its buffers.
    """
    for part in model.modules():
        if isinstance(part, DistributedDataParallel):
            held: nn.Module = part.module
            return held
    return model


def _is_trained(module: nn.Module) -> bool:
    """Return whether a module that is called now is to get gradients."""
    return torch.is_grad_enabled() and any(
        p.requires_grad for p in module.parameters()
    )


def examples_in(args: Any, named: Any) -> Examples | None:
    """Return the examples that a model is given, as its arguments.

    They are the rows of tensors. In detection they are the elements of lists
    of tensors, which have different shapes.
    """
    tensors = [x for x in tensors_in([args, named]) if x.dim()]
    if not tensors:
        return None
    given = [x for x in (*args, *named.values()) if [*tensors_in(x)]]
    if _is_of_examples(given[0]):
        count = len(given[0])
        lists = [x for x in given if _is_of_examples(x) and len(x) == count]
        if len(lists) > 1 or len(set(map(len, tensors))) > 1:
            parts = map(list, zip(*lists))
            numbers = [sum(map(_number_of, tensors_in(x))) for x in parts]
            return Examples(0, numbers)
    return Examples(tensors[0][:1].numel(), numbers_of(tensors))


def _is_of_examples(argument: Any) -> bool:
    """Return whether an argument of a model is a list of tensors."""
    kinds = torch.Tensor, Mapping
    is_list = isinstance(argument, (list, tuple))
    return is_list and all(isinstance(x, kinds) for x in argument)


@torch.no_grad()
def _number_of(x: torch.Tensor) -> float:
    values = None if isinstance(x, DTensor) else values_of(plain(x))
    if values is None or values.is_complex():
        return 0.0
    flat = values.detach().reshape(-1).double()
    return float(flat @ direction(len(flat)))


@torch.no_grad()
def numbers_of(tensors: list[torch.Tensor]) -> list[float]:
    """Return a number for each example, by which it is known again.

    A tensor counts if it has as many rows as the first.
    """
    count = len(tensors[0])
    total = torch.zeros(count, dtype=torch.float64, device="cpu")
    for x in tensors:
        if isinstance(x, DTensor) or len(x) != count:
            continue
        values = values_of(plain(x))
        if values is not None and not values.is_complex():
            rows = values.detach().reshape(count, -1).double()
            total += rows @ direction(rows.shape[1])
    return total.tolist()
