"""Pinned memory: ``x.pin_memory()``, with or without a GPU.

A copy to a GPU goes on beside other work only if the memory that it reads is
pinned: kept in its place by the system. PyTorch asks the accelerator for such
memory, and that is ``sim`` now, which has none to give. So both of its
questions, whether a tensor is pinned and for a pinned copy, come here.

On a machine with a GPU they go on to CUDA. Anywhere else the copy lies in
ordinary memory, and a mark on its storage says that it is pinned: a view has
the same storage, and the mark goes when the storage goes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn

import torch

from dpkit.accelerator import real_devices

# They take pin_memory=True, and C++ looks for the memory.
FUNCTIONS = """
    arange empty empty_like empty_permuted empty_strided eye full full_like
    linspace logspace normal ones ones_like rand rand_like randint
    randint_like randn randn_like randperm scalar_tensor tensor zeros
    zeros_like
""".split()
METHODS = """
    new_empty new_empty_strided new_full new_ones new_tensor new_zeros
""".split()

NOT_ON_CPU = "Only dense CPU tensors can be pinned"
DEPRECATED = "The argument 'device' of Tensor.is_pinned"
CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

# PyTorch's own; taken before others stand in their place.
_empty_strided = torch.empty_strided
_is_pinned_on = torch.library.get_kernel("aten::is_pinned", "CPU")


def is_pinned(tensor: torch.Tensor) -> bool:
    """Tell whether ``tensor`` lies in pinned memory of the host.

    Example:
        >>> import dpkit, torch
        >>> from dpkit.sim.pinned import is_pinned
        >>> dpkit.sim.register()
        >>> x = torch.ones(3)
        >>> is_pinned(x), is_pinned(x.pin_memory())
        (False, True)
    """
    if tensor.layout is not torch.strided:
        return tensor.is_pinned()
    if _has_mark(tensor):
        return True
    on_cpu = tensor.device.type == "cpu"
    return on_cpu and has_gpu() and _is_pinned_for_gpu(tensor)


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` if it is pinned, else a pinned copy of it."""
    return tensor.pin_memory()


def made_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that was just made on the host, in pinned memory.

    Without a GPU that is the tensor itself, marked from now on.

    Raises:
        RuntimeError: it was made on a simulated device.
    """
    if tensor.device.type == "sim":
        raise RuntimeError(NOT_ON_CPU)
    on_gpu = has_gpu() and tensor.device.type == "cpu"
    return pin(tensor) if on_gpu else _mark(tensor)


def pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes its tensor, then marks it as pinned."""

    def make(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs.pop("pin_memory", None)
        tensor = original(*args, **kwargs)
        if asked and tensor.device.type != "cpu":
            raise RuntimeError(NOT_ON_CPU)
        return made_pinned(tensor) if asked else tensor

    return make


def makers() -> list[tuple[Any, list[str]]]:
    """Return what of torch is to take ``pin_memory=True`` without a GPU.

    With a GPU it is nothing: PyTorch asks CUDA before sim.

    Returns:
        A module or class and the names of its functions, for each.
    """
    if has_gpu():
        return []
    return [(torch, FUNCTIONS), (torch.Tensor, METHODS)]


@cache
def has_gpu() -> bool:
    """Tell whether there is a GPU to pin memory for."""
    return bool(real_devices())


def kernels() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield the name of each operation, its kernel and its dispatch key."""
    yield "is_pinned", _answer, "CPU"
    yield "_pin_memory", _pinned_copy, "CPU"
    yield "pin_memory", _refuse, "AutogradPrivateUse1"


def _answer(tensor: torch.Tensor, device: torch.device | None = None) -> bool:
    """Tell whether a tensor on the CPU is pinned (for ``device``)."""
    if _has_mark(tensor):
        return True
    if device is None:
        return has_gpu() and _is_pinned_for_gpu(tensor)
    return bool(_is_pinned_on.call_boxed(CPU_KEY, tensor, device))


def _pinned_copy(
    tensor: torch.Tensor, device: torch.device | None = None
) -> torch.Tensor:
    """Return a copy of a tensor on the CPU, in pinned memory."""
    copied = _empty_strided(
        tensor.shape,
        tensor.stride(),
        dtype=tensor.dtype,
        pin_memory=has_gpu(),  # for this PyTorch asks CUDA before sim
    )
    return _mark(copied.copy_(tensor))


def _refuse(
    tensor: torch.Tensor, device: torch.device | None = None
) -> NoReturn:
    """Refuse to pin what lies on a simulated device, in torch's words."""
    raise RuntimeError(
        f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned"
    )


def _is_pinned_for_gpu(tensor: torch.Tensor) -> bool:
    """Ask CUDA by name; without a name PyTorch would ask ``sim``.

    To give a name is deprecated. The user gave none and need not hear of it:
    a filter is put first whenever another has come to be first. To take it
    away again would disturb the filters of other threads.
    """
    first = warnings.filters[0][1] if warnings.filters else None
    if getattr(first, "pattern", None) != DEPRECATED:
        warnings.filterwarnings("ignore", DEPRECATED, module=__name__)
    return torch.Tensor.is_pinned(tensor, "cuda")


def _mark(tensor: torch.Tensor) -> torch.Tensor:
    vars(tensor.untyped_storage())["dpkit_pinned"] = True
    return tensor


def _has_mark(tensor: torch.Tensor) -> bool:
    return hasattr(tensor.untyped_storage(), "dpkit_pinned")
