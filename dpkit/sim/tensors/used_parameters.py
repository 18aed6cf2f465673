"""Which parameters DDP has used: a list that it copies and sends in C++.

With ``find_unused_parameters=True``, and in the first step with
``static_graph=True``, each rank counts in a list of int32, on the CPU, which
parameters its graph has reached. The list goes to the device, and there the
lists of all ranks are added::

    rank 0     1 1 0 0
    rank 1     1 1 1 0
    the sum    2 2 1 0    nobody has used the last: its gradient stays as it is

For a device of PrivateUse1 PyTorch asks in C++ for pinned memory, which no
backend from Python has. So the list on the device says that it lies on the
CPU, and each copy of it is one to or from the device.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_EMPTY = torch.ops.aten.empty.memory_format
_COPY = torch.ops.aten.copy_.default
_CPU = torch.device("cpu")


class UsedParameters(Tensor):
    """The list of DDP on the device, ``on_device``, which C++ sees as CPU's.

    It can be copied, and sent by a process group.
    """

    on_device: Tensor

    # What comes to __torch_dispatch__ has not to be seen twice.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[Self], on_device: Tensor) -> Self:  # noqa: D102
        made = Tensor._make_wrapper_subclass(
            cls, on_device.shape, dtype=on_device.dtype, device=_CPU
        )
        made.on_device = on_device
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Copy it to the device, or from there, as with CUDA."""
        if func is not _COPY:
            return NotImplemented
        target, source = args[:2]
        if isinstance(target, cls):
            pinned = source.pin_memory()
            target.on_device.copy_(pinned, non_blocking=True)
        else:
            target.copy_(source.on_device)
        return target


def on_device(tensor: Tensor) -> Tensor:
    """Return what a process group sends for a tensor that it was given."""
    if isinstance(tensor, UsedParameters):
        return tensor.on_device
    return tensor


class _MakingList(TorchDispatchMode):
    """Makes int32 on a simulated device, which are no gradients, the list."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not _EMPTY or out.dtype is not torch.int32:
            return out
        return UsedParameters(out) if out.device.type == "sim" else out


def keeping_list(original: Callable[..., None]) -> Callable[..., None]:
    """Return a method of DDP's reducer that makes such a list, if any."""

    @wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        with _MakingList():  # type: ignore[no-untyped-call]
            original(self, *args, **kwargs)

    return run
