"""``torch.distributed`` takes no part in the simulation.

By itself it chooses what it would choose without simulated devices: NCCL and
a GPU where there is one, else gloo and the CPU. What it is asked to send of a
simulated device it refuses. It would send the numbers, by gloo, and that
costs nothing on the simulated clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from dpkit.sim.placement_rules import tensors_in
from dpkit.sim.torch_accelerator import real_or_cpu

# The operations that PyTorch sends by, those of DDP too.
NAMESPACES = (
    "c10d",
    "_c10d_functional",
    "_c10d_functional_autograd",
    "_dtensor",
)
_libraries: dict[str, torch.library.Library] = {}  # keep kernels registered


def refusals() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield namespace, operation and kernel of all that would send.

    They are for autograd's key of simulated tensors, which comes before
    ``SimTensor.__torch_dispatch__``: other operations pay nothing for it.
    """
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace in NAMESPACES:
            full_name = f"{name}.{schema.overload_name}".rstrip(".")
            yield namespace, full_name, _refusal(name)


def _refusal(name: str) -> Callable[..., Any]:
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
    """Return the backend of ``init_process_group()`` without a name.

    Example:
        >>> from dpkit.sim.distributed import default_backend
        >>> default_backend() in ("cpu:gloo", "cuda:nccl")
        True
    """
    kind = real_or_cpu().type
    return f"{kind}:{dist.Backend.default_device_backend_map[kind]}"


def install() -> None:
    """Let torch.distributed choose without sim, and refuse to send."""
    if not dist.is_available():
        return
    config = dist.distributed_c10d.BackendConfig
    usual = config.__init__

    def choose(self: Any, backend: str) -> None:
        undefined = str(backend) == dist.Backend.UNDEFINED
        usual(self, default_backend() if undefined else backend)

    config.__init__ = choose  # type: ignore[method-assign]
    for namespace in NAMESPACES:
        key = "AutogradPrivateUse1"
        _libraries[namespace] = torch.library.Library(namespace, "IMPL", key)
    for namespace, name, kernel in refusals():
        _libraries[namespace].impl(name, kernel)
