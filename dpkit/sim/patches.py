"""All that simulated devices change in torch, in one table.

Torch has one place for a backend from outside, PrivateUse1, and an
experimental way to fill it from Python. The rest of what a device needs is
changed by hand. Each change is a :class:`Patch` with four parts::

    name      what of torch is changed
    fits      the probe: has this torch what the change needs?
    apply     makes the change
    undo      takes it back; apply returns it

:func:`apply_all` asks every patch whether it fits before it applies any. The
order matters once: the last patch gives the backend its name, which torch
does not take back.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import nested, nn
from torch.distributed.distributed_c10d import BackendConfig
from torch.fx.experimental import proxy_tensor
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nn.modules import module
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import optimizer
from torch.utils import _device, _foreach_utils, backend_registration

from dpkit.sim import (
    autocast,
    backward,
    categories,
    distributed,
    generators,
    layouts,
    lazy,
    modules,
    pinned,
    plain_name,
    serialization,
    storages,
    torch_accelerator,
    torch_data_parallel,
    torch_sim,
)
from dpkit.sim.kernels import kernels
from dpkit.sim.patching import (
    Kernel,
    Patch,
    Undo,
    added,
    fallback,
    implemented,
    listed,
    replaced,
    required,
    stood_in,
    wrapped,
)
from dpkit.sim.tensor import SimTensor


@cache
def _all_kernels() -> list[tuple[str, Callable[..., Any], str]]:
    """Return each operation of aten, its kernel and its dispatch key."""
    return [*kernels(), *autocast.kernels()]


def _aten(key: str, *needed: str) -> Patch:
    """Give torch the kernels of aten that belong to one dispatch key."""

    def of_key() -> list[Kernel]:
        return [(name, run) for name, run, of in _all_kernels() if of == key]

    return implemented("aten", key, of_key, needed)


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
    name = "_setup_privateuseone_for_python_backend"
    setup = getattr(backend_registration, name, None)
    takes = ["rename", "backend_module", "hook", "device_guard"]
    return callable(setup) and list(inspect.signature(setup).parameters) == (
        takes
    )


def _take_the_place() -> Undo:
    backend_registration._setup_privateuseone_for_python_backend(
        "sim", backend_module=torch_sim, device_guard=backward.Guard()
    )
    return lambda: None  # torch has no way back


NEEDED = [
    required(torch.autograd.graph.Node, "_input_metadata"),
    required(torch.Tensor, "_use_count"),
    required(torch, "_functionalize_unsafe_set"),
    required(torch._C, "_swap_tensor_impl"),
    required(torch.serialization, "_serialization_tls"),
]
_ENGINE = ["t_outputs", "args", "kwargs"]
BACKWARD = [
    replaced(owner, "_engine_run_backward", backward.run_backward, _ENGINE)
    for owner in (torch.autograd.graph, torch.autograd)
]
OPTIMIZERS = [
    listed(optimizer, "_foreach_supported_types", SimTensor),
    listed(_foreach_utils, "_foreach_supported_types", SimTensor),
    Patch(
        "torch.optim.optimizer.register_optimizer_step_post_hook",
        lambda: callable(optimizer.register_optimizer_step_post_hook),
        _hook_optimizers,
    ),
]
MODULES = [
    wrapped(
        nn.Module, "_apply", modules.moving_whole, ["self", "fn", "recurse"]
    ),
    replaced(torch.Tensor, "data", modules.data),
    replaced(torch, "_has_compatible_shallow_copy_type", modules.fits),
    # Tensors that have others inside it would swap, which fails while the
    # output of the module is alive.
    replaced(
        module,
        "is_traceable_wrapper_subclass",
        modules.has_to_be_swapped,
        ["t"],
    ),
    *(
        wrapped(kind, "__new__", lazy.making(kind))
        for kind in (UninitializedParameter, UninitializedBuffer)
    ),
    replaced(nn.DataParallel, "__init__", torch_data_parallel.init),
    replaced(nn.DataParallel, "forward", torch_data_parallel.forward),
    replaced(
        torch_data_parallel.MODULE,
        "_get_available_device_type",
        torch_data_parallel.available,
        [],
    ),
]
STORAGES = [
    replaced(torch.UntypedStorage, "resize_", storages.resize_storage),
    replaced(torch.UntypedStorage, "__new__", storages.new_storage),
    Patch(
        "torch.serialization.register_package",
        lambda: isinstance(torch.serialization._package_registry, list),
        _load_to_sim,
    ),
]
LOADING = [
    replaced(torch.serialization, "_load", serialization.load),
    replaced(
        torch._utils,
        "_get_restore_location",
        serialization.location_of,
        ["device"],
    ),
]
# Such as torch.func.linearize, which else takes simulated tensors for
# constants, and their derivative with them.
TRACING = [
    wrapped(proxy_tensor, "HANDLED_TYPES", lambda old: (*old, SimTensor))
]
CURRENT_DEVICE = [
    *(
        stood_in(torch.Tensor, name, plain_name.numbering)
        for name in plain_name.METHODS
    ),
    *(
        stood_in(torch, name, plain_name.numbering)
        for name in plain_name.FUNCTIONS
    ),
    added(_device.DeviceContext, "device", plain_name.device_of_block),
]
ACCELERATOR = [
    replaced(torch._C, name, function)
    for name, function in torch_accelerator.replacements()
]
PINNED = [
    stood_in(owner, name, pinned.pinning)
    for owner, names in pinned.makers()
    for name in names
]
DENSE_ALONE = [
    *(
        fallback(key, layouts.refusal(kind))
        for kind, key in layouts.KEYS.items()
    ),
    *(
        stood_in(nested, name, layouts.refusing_nested)
        for name in layouts.NESTED
    ),
    wrapped(NestedTensor, "__new__", layouts.refusing_nested),
]
DISTRIBUTED = [
    wrapped(
        BackendConfig,
        "__init__",
        distributed.choosing,
        ["self", "backend"],
    ),
    *(
        implemented(
            namespace,
            "AutogradPrivateUse1",
            partial(distributed.refusals, namespace),
            [needed],
        )
        for namespace, needed in distributed.NAMESPACES.items()
    ),
]
KERNELS = [
    _aten("CPU", "is_pinned", "_pin_memory"),
    _aten("PrivateUse1", "_copy_from", "_local_scalar_dense"),
    _aten(
        "AutogradPrivateUse1",
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_thnn_fused_lstm_cell",
    ),
    _aten(autocast.KEY, "linear", "matmul", "softmax.int"),
    # What autocast has no rule for goes through as it is.
    fallback(autocast.KEY, torch.library.fallthrough_kernel),
]
PATCHES = [
    *NEEDED,
    *BACKWARD,
    *OPTIMIZERS,
    *MODULES,
    *STORAGES,
    *LOADING,
    *TRACING,
    *CURRENT_DEVICE,
    *ACCELERATOR,
    *PINNED,
    *DENSE_ALONE,
    *DISTRIBUTED,
    *KERNELS,
    replaced(torch, "Generator", generators.Generator),
    Patch(
        "the name and module of PrivateUse1", _place_is_free, _take_the_place
    ),
]

_undo: list[Undo] = []
_failure: RuntimeError | None = None
_lock = threading.RLock()  # a second thread waits for the first to be done


def apply_all() -> None:
    """Apply all patches, once; :func:`dpkit.sim.register` calls it.

    Raises:
        RuntimeError: a patch does not fit this torch, or failed. What had
            been applied is undone. Another call repeats the error.
    """
    global _failure
    with _lock:
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
