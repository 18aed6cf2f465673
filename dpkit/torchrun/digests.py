"""Gradients and parameters in two numbers each, to compare two runs by.

A gradient is kept as its length, and as its component along one fixed
direction. Two that are equal have both alike. Where one is three times the
other, both are three times as long; where they point elsewhere, the second is
not. DTensors are put together before, so that shards compare with the whole.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpkit.sim.changes.change import replaced
from dpkit.sim.memory.accounting import tensors_in
from dpkit.sim.tensors.behaviour import plain
from dpkit.torchrun.watchers import Watcher

_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")


class Digest(NamedTuple):
    """A tensor in two numbers."""

    shape: tuple[int, ...]
    length: float
    along: float  # its component in a fixed direction


class KeptDigests(NamedTuple):
    """The digests of a rank."""

    # For each step those that it uses, before they are clipped: the name of a
    # parameter -> the digest of its gradient.
    gradients: list[dict[str, Digest]]
    parameters: list[dict[str, Digest]]  # after each step
    batches: list[int]  # how many examples the model got in each forward
    is_flat: bool = False  # whether they are parts of flat shards


class Digests(Watcher):
    """Keeps the digests of a rank while its script runs."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.gradients: list[dict[str, Digest]] = []
        self._is_flat = False
        self.parameters: list[dict[str, Digest]] = []
        self._optimizers: list[Optimizer] = []
        self._names: dict[int, str] = {}  # by the address of a parameter
        self._model: nn.Module | None = None  # the outermost
        self._batches: list[int] = []

    def digests(self) -> KeptDigests:
        """Return what was kept."""
        return KeptDigests(
            self.gradients, self.parameters, self._batches, self._is_flat
        )

    def begin(self, stack: ExitStack) -> None:
        """Look on at optimizers, modules and what clips gradients."""
        init: Any = Optimizer.__init__

        def noted(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._optimizers.append(optimizer)

        stack.callback(replaced(Optimizer, "__init__", noted).apply())
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            new = self._keeping(getattr(nn.utils, name))
            stack.callback(replaced(nn.utils, name, new).apply())
        before_step = register_optimizer_step_pre_hook(self._keep_gradients)
        stack.callback(before_step.remove)
        names = register_module_forward_pre_hook(self._learn_names)
        stack.callback(names.remove)
        sizes = register_module_forward_hook(self._keep_size, with_kwargs=True)
        stack.callback(sizes.remove)

    def _keeping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that keeps the gradients before it clips them."""

        @wraps(clip)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._keep_gradients()
            return clip(*args, **kwargs)

        return run

    def _keep_gradients(self, *_: Any) -> None:
        if len(self.gradients) == len(self.parameters):
            self.gradients.append(self._digests("grad"))

    def stepped(self, optimizer: Optimizer) -> None:
        """Keep the parameters after a step."""
        self.parameters.append(self._digests("data"))

    def _learn_names(self, module: nn.Module, inputs: Any) -> None:
        """Take the names of parameters from the first module that is called.

        It is the outermost: those inside are called by it.
        """
        if self._model is not None:
            return
        self._model = module
        self._is_flat = any(
            isinstance(part, FullyShardedDataParallel)
            for part in module.modules()
        )
        for name, p in module.named_parameters():
            for wrapper in _WRAPPERS:
                name = name.replace(wrapper, "")
            self._names[id(p)] = name

    def _keep_size(
        self, module: nn.Module, inputs: Any, named: Any, outputs: Any
    ) -> None:
        """Keep how many examples the model was given to train on."""
        if module is not self._model or not module.training:
            return
        sizes = [len(x) for x in tensors_in([inputs, named]) if x.dim()]
        self._batches += sizes[:1]

    def _digests(self, attribute: str) -> dict[str, Digest]:
        """Return the digests of the parameters, or of their gradients."""
        found: dict[str, Digest] = {}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    value = p.grad if attribute == "grad" else p.detach()
                    if value is not None:
                        number = f"number {len(found)}"
                        name = self._names.get(id(p), number)
                        found[name] = digest(value)
        return found


@torch.no_grad()
def digest(tensor: torch.Tensor) -> Digest:
    """Return a tensor in two numbers."""
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    values = plain(tensor).detach().double().flatten()
    places = torch.arange(len(values), dtype=torch.float64, device="cpu")
    direction = torch.cos(places * places % 1013)  # anything but smooth
    return Digest(
        tuple(tensor.shape),
        float(values.norm()),
        float(values @ direction),
    )
