"""All that simulated devices change in torch, in one table.

Torch has one place for a backend from outside, PrivateUse1, and an
experimental way to fill it from Python. The rest of what a device needs is
changed by hand. Each change is a :class:`Patch` with four parts::

    name      what of torch is changed
    fits      tells whether this torch has what the change needs
    apply     makes the change
    undo      takes it back; apply returns it

:func:`apply_all` asks every patch whether it fits before it applies any. The
order matters once: the last patch gives the backend its name, which torch
does not take back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer
from torch.utils import _foreach_utils, backend_registration

from dpkit.sim import (
    autocast,
    backward,
    categories,
    generators,
    modules,
    serialization,
    torch_sim,
)
from dpkit.sim.configuration import simulation
from dpkit.sim.kernels import kernels
from dpkit.sim.tensor import SimTensor

Undo = Callable[[], object]


@dataclass(frozen=True)
class Patch:
    """A change of torch.

    Attributes:
        name: What of torch is changed.
        fits: Tells whether this torch has what the change needs.
        apply: Makes the change; returns what takes it back.
    """

    name: str
    fits: Callable[[], bool]
    apply: Callable[[], Undo]


def replaced(
    owner: Any, name: str, new: object, takes: list[str] | None = None
) -> Patch:
    """Put ``new`` in the place of an attribute.

    Args:
        owner: The module or class that has it.
        name: Its name there.
        new: What takes its place.
        takes: The names of the arguments that the function has to have;
            None: it is no function.
    """
    path = f"{owner.__name__}.{name}"

    def fits() -> bool:
        old = getattr(owner, name, None)
        if takes is None:
            return old is not None
        return callable(old) and list(inspect.signature(old).parameters) == (
            takes
        )

    def apply() -> Undo:
        old = getattr(owner, name)
        setattr(owner, name, new)
        return lambda: setattr(owner, name, old)

    return Patch(path, fits, apply)


def listed(owner: Any, name: str, item: object) -> Patch:
    """Append ``item`` to a list of torch."""
    path = f"{owner.__name__}.{name}"

    def apply() -> Undo:
        getattr(owner, name).append(item)
        return lambda: getattr(owner, name).remove(item)

    return Patch(
        path, lambda: isinstance(getattr(owner, name, None), list), apply
    )


@cache
def _all_kernels() -> list[tuple[str, Callable[..., Any], str]]:
    """Return each operation's name, kernel and dispatch key."""
    return [*kernels(), *autocast.kernels()]


def implemented(key: str, *needed: str) -> Patch:
    """Give torch the kernels that belong to one of its dispatch keys.

    Args:
        key: The name of the key.
        needed: Operations that torch has to have.
    """

    def fits() -> bool:
        has = torch._C._dispatch_has_kernel
        return all(has(f"aten::{name}") for name in needed)

    def apply() -> Undo:
        library = torch.library.Library("aten", "IMPL", key)
        try:
            for name, kernel, belongs_to in _all_kernels():
                if belongs_to == key:
                    library.impl(name, kernel)
        except BaseException:
            library._destroy()
            raise
        return library._destroy  # it also keeps the library alive

    return Patch(f"the kernels of {key}", fits, apply)


def _let_through() -> Undo:
    """Let what autocast has no rule for go through as it is."""
    library = torch.library.Library("_", "IMPL", autocast.KEY)
    library.fallback(torch.library.fallthrough_kernel)
    return library._destroy


def resize_storage(self: torch.UntypedStorage, size: int) -> Any:
    """Resize a storage, and tell the memory of the simulated devices."""
    return simulation.memory.resize_storage(self, size)


def _hook_optimizers() -> Undo:
    """Let all optimizers tell what they hold, after each step."""
    hook = categories.mark_optimizer
    return optimizer.register_optimizer_step_post_hook(hook).remove


def _load_to_sim() -> Undo:
    """Let ``torch.load`` ask move_storage before it moves a storage."""
    registry = torch.serialization._package_registry
    before = list(registry)
    # The CPU has priority 10. Tensors are saved without storage: no tag.
    torch.serialization.register_package(
        9, lambda storage: None, serialization.move_storage
    )
    (added,) = [entry for entry in registry if entry not in before]
    return lambda: registry.remove(added)


def _place_is_free() -> bool:
    """Tell whether torch's place for a backend is there, and empty.

    Raises:
        RuntimeError: another backend holds it.
    """
    holder = torch._C._get_privateuse1_backend_name()
    if holder != "privateuseone":
        raise RuntimeError(
            "another backend holds the one place that torch keeps for a "
            f"backend from outside (backend: {holder!r})"
        )
    setup = getattr(
        backend_registration, "_setup_privateuseone_for_python_backend", None
    )
    takes = ["rename", "backend_module", "hook", "device_guard"]
    return callable(setup) and list(inspect.signature(setup).parameters) == (
        takes
    )


def _take_the_place() -> Undo:
    backend_registration._setup_privateuseone_for_python_backend(
        "sim", backend_module=torch_sim, device_guard=backward.Guard()
    )
    return lambda: None  # torch has no way back


_ENGINE = ["t_outputs", "args", "kwargs"]
PATCHES = [
    replaced(
        torch.autograd.graph,
        "_engine_run_backward",
        backward.run_backward,
        _ENGINE,
    ),
    replaced(
        torch.autograd, "_engine_run_backward", backward.run_backward, _ENGINE
    ),
    replaced(
        nn.Module,
        "_apply",
        modules.apply_in_place,
        ["self", "fn", "recurse"],
    ),
    replaced(torch, "Generator", generators.Generator),
    replaced(torch.UntypedStorage, "resize_", resize_storage),
    listed(optimizer, "_foreach_supported_types", SimTensor),
    listed(_foreach_utils, "_foreach_supported_types", SimTensor),
    Patch(
        "torch.optim.optimizer.register_optimizer_step_post_hook",
        lambda: hasattr(optimizer, "register_optimizer_step_post_hook"),
        _hook_optimizers,
    ),
    Patch(
        "torch.serialization.register_package",
        lambda: hasattr(torch.serialization, "_package_registry"),
        _load_to_sim,
    ),
    implemented("CPU", "is_pinned", "_pin_memory"),
    implemented("PrivateUse1", "_copy_from", "_local_scalar_dense"),
    implemented(
        "AutogradPrivateUse1",
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_thnn_fused_lstm_cell",
    ),
    implemented(autocast.KEY, "linear", "matmul", "softmax.int"),
    Patch(
        f"what passes {autocast.KEY}",
        lambda: hasattr(torch.library.Library, "fallback"),
        _let_through,
    ),
    Patch(
        "the name and module of PrivateUse1", _place_is_free, _take_the_place
    ),
]

_undo: list[Undo] = []
_failure: RuntimeError | None = None


def apply_all() -> None:
    """Apply all patches, once; :func:`dpkit.sim.register` calls it.

    Raises:
        RuntimeError: a patch does not fit this torch, or failed. What had
            been applied is undone. Another call repeats the error.
    """
    global _failure
    if _failure is not None:
        raise _failure
    if _undo:
        return
    for step in (_probe, _apply):
        for patch in PATCHES:
            try:
                step(patch)
            except BaseException as error:
                undo_all()
                if not isinstance(error, Exception):  # Ctrl-C
                    raise
                _failure = _failed(patch.name, error)
                raise _failure from error


def _probe(patch: Patch) -> None:
    if not patch.fits():
        raise RuntimeError("this torch lacks what the patch needs")


def _apply(patch: Patch) -> None:
    _undo.append(patch.apply())


def undo_all() -> None:
    """Take back what has been applied, the last first."""
    while _undo:
        _undo.pop()()


def _failed(name: str, error: Exception) -> RuntimeError:
    return RuntimeError(
        "simulated devices do not fit this torch (torch: "
        f"{torch.__version__}, patch: {name}, reason: {error}); "
        'devices(kind="cpu") needs no patch'
    )
