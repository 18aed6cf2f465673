"""What simulated devices refuse, in words that say what to use instead.

- Tensors that are not dense: a tensor that stands for another cannot show
  PyTorch the numbers of sparse and nested ones.
- ``torch.nn.DataParallel``, which copies from GPU to GPU by functions of CUDA.
  Once there is a backend from outside it would choose that also for a module
  on the CPU; there it works as before.
- ``torch.distributed``. By itself it chooses what it would choose without
  simulated devices: NCCL and a GPU where there is one, else gloo and the CPU.
  What it is asked to send of a simulated device is refused: it would send the
  numbers by gloo, and that costs nothing on the simulated clock.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from dpkit.sim.device_names import real_or_cpu
from dpkit.sim.memory import tensors_in

# Where PyTorch looks for the kernels of each kind of tensor, on a backend
# from outside.
LAYOUT_KEYS = {
    "nested": "NestedTensorPrivateUse1",
    "sparse": "SparsePrivateUse1",
    "sparse in rows": "SparseCsrPrivateUse1",
}
NESTED = (
    "as_nested_tensor",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
)

# Where the operations are that PyTorch sends by, those of DDP too; and one
# of each that has to be there.
NAMESPACES = {
    "c10d": "allreduce_",
    "_c10d_functional": "all_reduce",
    "_c10d_functional_autograd": "all_to_all_single",
    "_dtensor": "shard_dim_alltoall",
}

# torch.nn.parallel.data_parallel is a function, not this module.
DATA_PARALLEL = sys.modules[nn.DataParallel.__module__]
_init: Any = nn.DataParallel.__init__
_forward: Any = nn.DataParallel.forward
_available: Any = vars(DATA_PARALLEL)["_get_available_device_type"]


def not_dense(kind: str, device: object) -> NotImplementedError:
    """Return the error for a tensor that is not dense."""
    return NotImplementedError(
        "a simulated device holds dense tensors alone (kind of tensor: "
        f"{kind}, device: {device}); leave this one on the CPU, or make it "
        "dense"
    )


def check_dense(tensor: torch.Tensor, device: torch.device) -> None:
    """Refuse a tensor that is not dense; it is to be on ``device``."""
    if tensor.is_nested:
        raise not_dense("nested", device)
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").removeprefix("_")
        raise not_dense(kind, device)


def _simulated_in(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """Return the first simulated device among arguments, if there is one."""
    named = kwargs.get("device")
    found = [torch.device(named)] if isinstance(named, str) else []
    for leaf in tree_leaves((args, kwargs)):
        found.append(getattr(leaf, "device", leaf))
    found = [x for x in found if isinstance(x, torch.device)]
    return next((device for device in found if device.type == "sim"), None)


def refusing_layout(kind: str) -> Callable[..., NoReturn]:
    """Return what stands for all kernels of a kind of tensor."""

    def refuse(func: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_dense(kind, _simulated_in(args, kwargs))

    return refuse


def refusing_nested(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes nested tensors elsewhere alone."""

    def make(*args: Any, **kwargs: Any) -> Any:
        device = _simulated_in(args, kwargs)
        if device is not None:
            raise not_dense("nested", device)
        return original(*args, **kwargs)

    return make


def data_parallel_kind() -> str | None:
    """Return the kind of device that ``DataParallel`` may copy between."""
    kind: str | None = _available()
    return None if kind == "sim" else kind


def init_data_parallel(
    self: Any, module: nn.Module, device_ids: Any = None, *args: Any, **kw: Any
) -> None:
    """Stand in for ``DataParallel.__init__``."""
    _refuse_simulated(module, device_ids)
    _init(self, module, device_ids, *args, **kw)


def forward_data_parallel(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for ``DataParallel.forward``; the module may have moved."""
    _refuse_simulated(self.module)
    return _forward(self, *args, **kwargs)


def _refuse_simulated(module: nn.Module, devices: Any = None) -> None:
    """Refuse a module, or devices, of the simulation."""
    tensors = chain(module.parameters(), module.buffers())
    named = [x for x in devices or [] if isinstance(x, (str, torch.device))]
    for device in [*(t.device for t in tensors), *map(torch.device, named)]:
        if device.type == "sim":
            raise NotImplementedError(
                "torch.nn.DataParallel copies by functions of CUDA (device: "
                f"{device}); dpkit.DataParallel(module, devices) does the "
                "same on simulated devices"
            )


def sending_kernels(
    namespace: str,
) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield operation and refusal of all in a namespace that would send."""
    # They are for autograd's key of simulated tensors, which comes before
    # SimTensor.__torch_dispatch__: other operations pay nothing for it.
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == namespace:
            full_name = f"{name}.{schema.overload_name}".rstrip(".")
            yield full_name, _refusing_to_send(name)


def _refusing_to_send(name: str) -> Callable[..., Any]:
    """Return a kernel that says what to use instead."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        found = {t.device for t in tensors_in([args, kwargs])}
        device = min(map(str, found), key=lambda d: not d.startswith("sim"))
        raise NotImplementedError(
            "torch.distributed does not send what lies on a simulated device "
            f"(operation: {name}, device: {device}); dpkit.allreduce and its "
            "like do, dpkit.DataParallel stands in for PyTorch's "
            "DistributedDataParallel, and tensors on the CPU go by gloo"
        )

    return refuse


def default_backend() -> str:
    """Return the backend of ``init_process_group()`` without a name."""
    kind = real_or_cpu().type
    return f"{kind}:{dist.Backend.default_device_backend_map[kind]}"


def choosing_backend(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``BackendConfig.__init__`` that chooses as without sim."""

    def choose(self: Any, backend: str) -> None:
        undefined = str(backend) == dist.Backend.UNDEFINED
        original(self, default_backend() if undefined else backend)

    return choose
