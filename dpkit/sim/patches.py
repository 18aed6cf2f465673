"""All that simulated devices change in torch, in one table.

Torch has one place for a backend from outside, PrivateUse1, and an
experimental way to fill it from Python. The rest of what a device needs is
changed by hand. Each change is a :class:`Patch`::

    name      what of torch is changed
    fits      the probe: has this torch what the change needs?
    apply     makes the change
    undo      what apply returns: takes the change back

``changes.change.apply_all`` asks every patch whether it fits before it applies
any. The order matters once: the last patch gives the backend its name,
which torch does not take back. What ``dpkit.sim.launch`` needs besides is
listed in ``dpkit/runs/ranks/needed.py``.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import nested, nn
from torch._C._distributed_c10d import Reducer
from torch._library import simple_registry
from torch.distributed.distributed_c10d import Backend, BackendConfig
from torch.fx.experimental import proxy_tensor
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nn.attention import _utils as attention_utils
from torch.nn.modules import module
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import optimizer
from torch.utils import _device, _foreach_utils, backend_registration

from dpkit.sim import torch_sim, tracing
from dpkit.sim.changes import mixed_backends
from dpkit.sim.changes.change import (
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
from dpkit.sim.devices import names as device_names
from dpkit.sim.kernels import flex_attention
from dpkit.sim.kernels.registered import AUTOCAST, aten_kernels
from dpkit.sim.operators import random_numbers, refusals
from dpkit.sim.parallel.patches import parallel_patches
from dpkit.sim.streams import generic as generic_streams
from dpkit.sim.streams import sending
from dpkit.sim.tensors import (
    backward,
    dispatch_rule,
    initialization,
    modules,
    storages,
    used_parameters,
)
from dpkit.sim.tensors.tensor import SimTensor


@cache
def _all_kernels() -> list[tuple[str, Callable[..., Any], str]]:
    """Return each operation of aten, its kernel and its dispatch key."""
    return list(aten_kernels())


def _aten(key: str, *needed: str) -> Patch:
    """Give torch the kernels of aten that belong to one dispatch key."""

    def of_key() -> list[Kernel]:
        return [(name, run) for name, run, of in _all_kernels() if of == key]

    return implemented("aten", key, of_key, needed)


def _hook_optimizers() -> Undo:
    """Note what every optimizer holds, after each of its steps."""
    hook = tracing.mark_optimizer
    return optimizer.register_optimizer_step_post_hook(hook).remove


def _load_to_sim() -> Undo:
    """Make ``torch.load`` ask move_storage before it moves a storage."""
    registry = torch.serialization._package_registry
    before = list(registry)
    # The CPU has priority 10. Tensors are saved without storage: no tag.
    torch.serialization.register_package(
        9, lambda storage: None, storages.move_storage
    )
    (added,) = [entry for entry in registry if entry not in before]
    return lambda: registry.remove(added)


def _register_backend() -> Undo:
    """Make "sim" a backend of torch.distributed, for the CPU as well."""
    kinds = ["sim", "cpu"]
    maker = sending.make_group
    Backend.register_backend(
        sending.BACKEND, maker, extended_api=True, devices=kinds
    )
    tables = Backend.backend_type_map, Backend.backend_capability
    return lambda: _unregister_backend(*tables, Backend._plugins)


def _unregister_backend(*tables: dict[str, Any]) -> None:
    for table in (*tables, Backend.default_device_backend_map):
        table.pop(sending.BACKEND, None)
        table.pop(sending.BACKEND.upper(), None)
    Backend.backend_list.remove(sending.BACKEND)
    delattr(Backend, sending.BACKEND.upper())


def _give_flex_attention() -> Undo:
    """Give the operator of FlexAttention a kernel for simulated devices."""
    operator: Any = torch.ops.higher_order.flex_attention
    names = "AutogradPrivateUse1", AUTOCAST
    keys = [getattr(torch._C.DispatchKey, name) for name in names]
    for key in keys:
        operator.py_impl(key)(flex_attention.flex_attention)

    def undo() -> None:
        for key in keys:
            del operator.py_kernels[key]
        operator._dispatch_cache.clear()

    return undo


def _allow_flex_attention() -> Undo:
    """Change what ``flex_attention`` calls first, wherever that is held."""
    name = "_validate_sdpa_input"
    undo = [
        wrapped(module, name, flex_attention.letting_through).apply()
        for module in flex_attention.modules_that_hold_it()
    ]

    def undo_all() -> None:
        flex_attention.change_back()
        for each in undo:
            each()

    return undo_all


def _place_is_free() -> bool:
    """Return whether torch's place is there; refuse one that is taken."""
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
    # Before sim has a name: it takes a while, and may be interrupted. C++ must
    # at no moment take sim for the accelerator of a machine with GPUs.
    mixed_backends.choose_gpus()
    backend_registration._setup_privateuseone_for_python_backend(
        "sim", backend_module=torch_sim, device_guard=backward.Guard()
    )
    return lambda: None  # torch has no way back


_ENGINE = backward.run_backward, ["t_outputs", "args", "kwargs"]
PATCHES = [
    # Asked for alone
    required(torch.autograd.graph.Node, "_input_metadata"),
    required(torch.Tensor, "_use_count"),
    required(torch, "_functionalize_unsafe_set"),
    required(torch._C, "_swap_tensor_impl"),
    required(torch._C, "_current_autograd_node"),
    required(torch._C._autograd, "_get_sequence_nr"),
    required(torch.serialization, "_serialization_tls"),
    # Operations
    wrapped(
        simple_registry,
        "find_torch_dispatch_rule",
        dispatch_rule.finding_sim,
        ["op", "torch_dispatch_class"],
    ),
    # Backward
    replaced(torch.autograd.graph, "_engine_run_backward", *_ENGINE),
    replaced(torch.autograd, "_engine_run_backward", *_ENGINE),
    # Optimizers
    listed(optimizer, "_foreach_supported_types", SimTensor),
    listed(_foreach_utils, "_foreach_supported_types", SimTensor),
    Patch(
        "torch.optim.optimizer.register_optimizer_step_post_hook",
        lambda: callable(optimizer.register_optimizer_step_post_hook),
        _hook_optimizers,
    ),
    # Modules
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
        modules.has_to_be_opened,
        ["t"],
    ),
    *(
        wrapped(kind, "__new__", partial(modules.making_uninitialized, kind))
        for kind in (UninitializedParameter, UninitializedBuffer)
    ),
    wrapped(
        nn.parallel.DistributedDataParallel,
        "__init__",
        refusals.refusing_ddp,
    ),
    *(
        wrapped(Reducer, name, used_parameters.keeping_list)
        for name in ("__init__", "_set_static_graph")
    ),
    *parallel_patches(),
    wrapped(
        nn.init,
        "_no_grad_trunc_normal_",
        initialization.drawing_once,
        ["tensor", "mean", "std", "a", "b", "generator"],
    ),
    # Storages, and loading them
    replaced(torch.UntypedStorage, "resize_", storages.resize_storage),
    *(
        wrapped(torch.UntypedStorage, name, storages.losing_values)
        for name in ("copy_", "fill_", "__setitem__")
    ),
    replaced(torch.UntypedStorage, "__new__", storages.new_storage),
    Patch(
        "torch.serialization.register_package",
        lambda: isinstance(torch.serialization._package_registry, list),
        _load_to_sim,
    ),
    replaced(torch.serialization, "_load", storages.load_and_forget),
    replaced(
        torch._utils, "_get_restore_location", storages.location_of, ["device"]
    ),
    # Functions such as torch.func.linearize, which else take simulated tensors
    # for constants, and their derivative with them
    wrapped(proxy_tensor, "HANDLED_TYPES", lambda old: (*old, SimTensor)),
    # Plain "sim" means the current device
    *(
        stood_in(owner, name, device_names.numbering)
        for owner, names in device_names.NUMBERED.items()
        for name in names
    ),
    added(_device.DeviceContext, "device", device_names.device_of_block),
    # torch.accelerator
    *(
        replaced(torch._C, name, function)
        for name, function in device_names.accelerator_calls()
    ),
    replaced(torch._C, "_get_accelerator", sending.own_choice),
    # Pinned memory
    *(
        stood_in(owner, name, storages.pinning)
        for owner, names in storages.makers()
        for name in names
    ),
    # Dense tensors alone
    *(
        fallback(key, refusals.refusing_layout(kind))
        for kind, key in refusals.LAYOUT_KEYS.items()
    ),
    *(
        stood_in(nested, name, refusals.refusing_nested)
        for name in refusals.NESTED
    ),
    wrapped(NestedTensor, "__new__", refusals.refusing_nested),
    # torch.distributed
    Patch(
        "torch.distributed.distributed_c10d.Backend._plugins",
        lambda: isinstance(Backend._plugins, dict),
        _register_backend,
    ),
    wrapped(
        BackendConfig,
        "__init__",
        sending.choosing_backend,
        ["self", "backend"],
    ),
    implemented(
        sending.NAMESPACE,
        "AutogradPrivateUse1",
        sending.sending_kernels,
        ["allreduce_"],
    ),
    # The kernels of operations
    _aten("CPU", "is_pinned", "_pin_memory"),
    _aten("PrivateUse1", "_copy_from", "_local_scalar_dense"),
    _aten(
        "AutogradPrivateUse1",
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_thnn_fused_lstm_cell",
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
    ),
    _aten("Meta", "_transform_bias_rescale_qkv", "_masked_softmax"),
    _aten(AUTOCAST, "linear", "matmul", "softmax.int"),
    # What autocast has no rule for goes through as it is.
    fallback(AUTOCAST, torch.library.fallthrough_kernel),
    # FlexAttention
    Patch(
        "torch.ops.higher_order.flex_attention",
        lambda: hasattr(torch.ops.higher_order.flex_attention, "py_impl"),
        _give_flex_attention,
    ),
    Patch(
        "torch.nn.attention._utils._validate_sdpa_input",
        lambda: callable(attention_utils._validate_sdpa_input),
        _allow_flex_attention,
    ),
    replaced(torch, "Generator", random_numbers.Generator),
    replaced(torch, "Stream", generic_streams.AnyStream),
    replaced(torch, "Event", generic_streams.AnyEvent),
    Patch(
        "the name and module of PrivateUse1", _place_is_free, _take_the_place
    ),
]
