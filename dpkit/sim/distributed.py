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

# Where the operations are that PyTorch sends by, those of DDP too; and one
# of each that has to be there.
NAMESPACES = {
    "c10d": "allreduce_",
    "_c10d_functional": "all_reduce",
    "_c10d_functional_autograd": "all_to_all_single",
    "_dtensor": "shard_dim_alltoall",
}


def refusals(namespace: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield operation and kernel of all in a namespace that would send.

    They are for autograd's key of simulated tensors, which comes before
    ``SimTensor.__torch_dispatch__``: other operations pay nothing for it.
    """
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == namespace:
            full_name = f"{name}.{schema.overload_name}".rstrip(".")
            yield full_name, _refusal(name)


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


def choosing(original: Callable[..., None]) -> Callable[..., None]:
    """Return a ``BackendConfig.__init__`` that chooses as without sim."""

    def choose(self: Any, backend: str) -> None:
        undefined = str(backend) == dist.Backend.UNDEFINED
        original(self, default_backend() if undefined else backend)

    return choose
