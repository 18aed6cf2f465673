"""Gradients and parameters in two numbers each, to compare two runs by.

A gradient is kept as its length, and as its component along one fixed
direction. Two that are equal have both alike. Where one is three times the
other, both are three times as long; where they point elsewhere, the second is
not. DTensors are put together before, so that shards compare with the whole.

For a parameter, a third number says how far a step has moved it along its
gradient. Where a gradient is nothing but rounding, Adam moves the parameter by
some of this noise; along the gradient that counts for nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.amp import GradScaler
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from dpkit.runs.forked.group import ForkedGroup
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim.changes import replaced
from dpkit.sim.containers import tensors_in
from dpkit.sim.operators import is_freed
from dpkit.sim.tensors import plain

# The direction repeats cosines of n · n modulo a prime, which are not smooth.
_PERIOD = torch.cos(torch.arange(1013, dtype=torch.float64) ** 2 % 1013)
COMPONENTS = 16  # of a gradient before it is averaged
_REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")


class Digest(NamedTuple):
    """A tensor in two numbers."""

    shape: tuple[int, ...]
    length: float
    along: float  # its component in a fixed direction


class StepDigests(NamedTuple):
    """What is kept of one step of the optimizer, by names of parameters."""

    gradients: dict[str, Digest]  # those that it uses, before they are clipped
    # Components of these gradients as the rank's own backward has computed
    # them, before they are averaged.
    own: dict[str, list[float]]
    before: dict[str, Digest]  # parameters, before the step
    # The same where several optimizers step: before the last of them.
    begun: dict[str, Digest]
    parameters: dict[str, Digest]  # after the step
    left: dict[str, Digest]  # what the next step begins with
    moved: dict[str, float]  # how far, along its gradient
    rates: dict[str, float]  # a group of an optimizer -> its learning rate
    scales: list[float]  # of GradScalers that have stepped
    stored: float  # the relative rounding of parameters
    reduced: int  # numbers that are reduced inside of the optimizer's step


class Digests(Watcher):
    """Keeps the digests of a rank while its script runs.

    Args:
        rank: The number of the rank.
        name_of: Returns the name of a parameter, or None.
        take_own: Returns what backward has computed for a name.
        at_end: Is given the number of a step that has ended, and parameters
            by their names, which it may change.
    """

    def __init__(
        self,
        rank: int,
        name_of: Callable[[torch.Tensor], str | None],
        take_own: Callable[[str], list[float]],
        at_end: Callable[[int, dict[str, torch.Tensor]], None],
    ) -> None:
        super().__init__(rank)
        self.steps: list[StepDigests] = []
        self.states = 0  # parameters that an optimizer had a state of then
        self._name_of = name_of
        self._take_own = take_own
        self._at_end = at_end
        self._optimizers: list[Optimizer] = []
        self._numbers: dict[int, int] = {}  # of parameters without a name
        # What belongs to the step that is being done.
        self._first: dict[str, Digest] = {}  # parameters, before it
        self._begun: dict[str, Digest] = {}  # before its last optimizer
        self._gradients: dict[str, Digest] = {}
        self._own: dict[str, list[float]] = {}
        self._rates: dict[str, float] = {}
        self._scales: list[float] = []
        self._before: dict[str, torch.Tensor] = {}
        self._moved: dict[str, float] = {}
        self._is_inside = False  # of an optimizer's step
        self._reduced = 0

    def begin(self, stack: ExitStack) -> None:
        """Look on at optimizers, scalers and what clips gradients."""
        init: Any = Optimizer.__init__

        def noted(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._optimizers.append(optimizer)

        stack.callback(replaced(Optimizer, "__init__", noted).apply())
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            new = self._keeping(getattr(nn.utils, name))
            stack.callback(replaced(nn.utils, name, new).apply())
        scaled = self._noting_scale(GradScaler.step)
        stack.callback(replaced(GradScaler, "step", scaled).apply())
        before: Any = self._before_step
        stack.callback(register_optimizer_step_pre_hook(before).remove)
        after: Any = self._after_step
        stack.callback(register_optimizer_step_post_hook(after).remove)

    def _keeping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that keeps gradients before it clips them."""

        @wraps(clip)
        def run(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            is_one = isinstance(parameters, torch.Tensor)
            listed = [parameters] if is_one else list(parameters)
            clipped = {id(p) for p in listed}
            for name, p in self._parameters():
                if id(p) in clipped:
                    self._keep_gradient(name, p)
            return clip(listed, *args, **kwargs)

        return run

    def _noting_scale(self, step: Any) -> Callable[..., Any]:
        @wraps(step)
        def run(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            self._scales.append(scaler.get_scale())
            return step(scaler, *args, **kwargs)

        return run

    def _keep_gradient(self, name: str, p: torch.Tensor) -> None:
        if p.grad is not None and name not in self._gradients:
            self._gradients[name] = digest(p.grad)
            self._own[name] = self._take_own(name)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Keep what an optimizer is about to use."""
        self._begun = self._digests_of_parameters()
        if not self._first:
            self._first = self._begun
            if not self.steps:
                self.states = sum(len(one.state) for one in self._optimizers)
        if optimizer in self._optimizers:
            number = self._optimizers.index(optimizer)
            for i, group in enumerate(optimizer.param_groups):
                self._rates[f"{number}.{i}"] = float(group.get("lr", 0))
        for name, p in self._parameters(optimizer):
            if p.grad is not None:
                self._keep_gradient(name, p)
                self._before[name] = whole(p).clone()
        self._is_inside = True

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Keep how far an optimizer has moved its parameters."""
        self._is_inside = False
        for name, p in self._parameters(optimizer):
            if name in self._before and p.grad is not None:
                way = (whole(p) - self._before.pop(name)).double().flatten()
                gradient = whole(p.grad).double().flatten()
                length = float(gradient.norm())
                along = float(way @ gradient) / length if length else 0.0
                self._moved[name] = along

    def called(
        self, group: ForkedGroup, call: CollectiveCall, tensors: Any
    ) -> None:
        """Count what a step reduces before an optimizer inside of it steps.

        What it sends later are parameters.
        """
        if self._is_inside and call.kind in _REDUCTIONS:
            is_pair = isinstance(tensors, tuple)
            given = tensors[1] if is_pair else tensors
            self._reduced += sum(x.numel() for x in tensors_in(given))

    def skipped(self, optimizer: Optimizer) -> None:
        """Forget the gradients of a step that a scaler has left out."""
        for name, _ in self._parameters(optimizer):
            self._gradients.pop(name, None)
            self._own.pop(name, None)
            self._take_own(name)
        self._scales = []

    def stepped(self, optimizer: Optimizer) -> None:
        """Keep what there is after a step."""
        self._after_step(optimizer)
        parameters = self._digests_of_parameters()
        self._at_end(len(self.steps) + 1, dict(self._parameters()))
        self.steps.append(
            StepDigests(
                gradients=self._gradients,
                own=self._own,
                before=self._first,
                begun=self._begun,
                parameters=parameters,
                left=self._digests_of_parameters(),
                moved=self._moved,
                rates=self._rates,
                scales=self._scales,
                stored=self._rounding(),
                reduced=self._reduced,
            )
        )
        self._gradients = {}
        self._own = {}
        self._first = {}
        self._moved = {}
        self._rates = {}
        self._scales = []
        self._reduced = 0

    def _parameters(
        self, *optimizers: Optimizer
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the parameters of optimizers, or of all, with their names.

        FSDP frees those that it has put together. An optimizer that has taken
        them before holds parameters without values.
        """
        for optimizer in optimizers or self._optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if is_freed(_own_part(p)):
                        continue
                    number = self._numbers.setdefault(
                        id(p), len(self._numbers)
                    )
                    yield self._name_of(p) or f"number {number}", p

    def _rounding(self) -> float:
        """Return the relative rounding of parameters."""
        dtypes = {p.dtype for _, p in self._parameters()}
        exact = [torch.finfo(d).eps for d in dtypes if d.is_floating_point]
        return max(exact, default=0.0)

    def at_end(self) -> dict[str, Digest]:
        """Return parameters as they are once the script has ended.

        A parameter of which the rank has a part is left out: there is no
        process group any more that puts it together.
        """
        return {
            name: digest(p.detach())
            for name, p in self._parameters()
            if not isinstance(p, DTensor)
        }

    def _digests_of_parameters(self) -> dict[str, Digest]:
        return {name: digest(p.detach()) for name, p in self._parameters()}


def _own_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what of a tensor lies on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor, put together from all ranks."""
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return plain(tensor)


@torch.no_grad()
def digest(tensor: torch.Tensor) -> Digest:
    """Return a tensor in two numbers."""
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    values = plain(tensor).detach().double().flatten()
    return Digest(
        tuple(tensor.shape),
        float(values.norm()),
        float(values @ direction(len(values))),
    )


@torch.no_grad()
def finite(tensor: torch.Tensor) -> torch.Tensor:
    """Return values that compare: a mask holds infinities, and equals itself.

    They become large numbers, and so does NaN.
    """
    values = whole(tensor).double()
    return values.nan_to_num(nan=3e30, posinf=1e30, neginf=-1e30)


def direction(size: int) -> torch.Tensor:
    """Return the direction in which components of tensors are taken."""
    return _PERIOD.repeat(-(-size // len(_PERIOD)))[:size]


@torch.no_grad()
def components(tensor: torch.Tensor) -> list[float]:
    """Return the components of a tensor in some fixed directions.

    Their sum is ``along`` of its digest.
    """
    values = plain(tensor).detach().double().flatten()
    values = values * direction(len(values))
    rest = -len(values) % COMPONENTS
    padded = nn.functional.pad(values, (0, rest))
    found: list[float] = padded.view(-1, COMPONENTS).sum(0).tolist()
    return found
