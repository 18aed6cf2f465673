"""What PyTorch's storages do when there are simulated devices.

A storage is the memory behind a tensor. The storage of a simulated tensor lies
where its values are, on the CPU, and counts as memory of the simulated
device.

Loading: a storage that ``torch.load(…, map_location="sim:1")`` moves stays on
the CPU and says that it is on the simulated device; the tensor that torch
makes of it is a ``SimTensor``. With ``backing="meta"`` it goes to torch's
device "meta". A simulated tensor is saved as one of the CPU and the name of
its device.

Pinned memory: PyTorch asks its backend whether a tensor is pinned, and for a
pinned copy. That backend is ``sim`` now, so both questions come here. On a
machine with a GPU they go on to CUDA. Anywhere else the copy lies in ordinary
memory, and its storage has a mark, which its views see as well.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, NoReturn

import torch
from torch import serialization

from dpkit.accelerator import real_devices
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import full_device
from dpkit.sim.memory.small_integers import lose_values_of_storage

# They take pin_memory=True, and C++ looks for the memory.
PINNING_FUNCTIONS = (
    "arange empty empty_like empty_permuted empty_strided eye full full_like "
    "linspace logspace normal ones ones_like rand rand_like randint "
    "randint_like randn randn_like randperm scalar_tensor tensor zeros "
    "zeros_like"
).split()
PINNING_METHODS = (
    "new_empty new_empty_strided new_full new_ones new_zeros"
).split()

NOT_ON_CPU = "Only dense CPU tensors can be pinned"
_DEPRECATED = "The argument 'device' of Tensor.is_pinned"
_CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

# PyTorch's own; taken before others stand in their place.
_empty_strided = torch.empty_strided
_is_pinned_on = torch.library.get_kernel("aten::is_pinned", "CPU")
_usual_location: Callable[..., Any] = torch._utils._get_restore_location
_usual_load: Callable[..., Any] = serialization._load


def new_storage(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for ``UntypedStorage.__new__``, which would end the process."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "sim":
        raise NotImplementedError(
            "a simulated device has no storage without a tensor (device: "
            f"{device}); torch.empty makes a tensor there"
        )
    return torch._C.StorageBase.__new__(cls, *args, **kwargs)


def resize_storage(self: torch.UntypedStorage, size: int) -> Any:
    """Stand in for ``UntypedStorage.resize_``, and count the new size."""
    device = simulation.memory.device_of(self)
    resized = simulation.memory.resize_storage(self, size)
    if simulation.races is not None and device is not None:
        simulation.races.resized(self, device)
    return resized


def losing_values(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a storage that writes, and makes values unknown."""

    @wraps(original)
    def write(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        lose_values_of_storage(self)
        return original(self, *args, **kwargs)

    return write


class SimStorage(torch.UntypedStorage):
    """A storage of plain memory that says it is on a simulated device."""

    device: Any = None  # in place of the property of UntypedStorage


def move_storage(storage: Any, location: str) -> SimStorage | None:
    """Return ``storage`` on ``location``; None if that is not simulated.

    A machine without values (``backing="meta"``) takes its size alone.
    """
    if not location.startswith("sim"):
        return None
    made: Any = SimStorage
    has_values = simulation.backing.type != "meta"
    moved: SimStorage = made(
        storage.nbytes(), device="cpu" if has_values else "meta"
    )
    if has_values:
        moved.copy_(storage)
    moved.device = full_device(location)
    return moved


def location_of(device: str) -> Any:
    """Return where a tensor goes that was saved on ``device``."""
    # map_location may be a function of a storage and of this name. It is
    # given a storage without values: where it puts that goes the tensor.
    chosen: Any = serialization._serialization_tls.map_location
    if not callable(chosen):
        return _usual_location(device)
    storage = chosen(torch.UntypedStorage(0), device)
    return device if storage is None else storage.device


def load_and_forget(*args: Any, **options: Any) -> Any:
    """Stand in for the part of ``torch.load`` that knows ``map_location``."""
    # PyTorch forgets it after a load, but not after one that failed. Then it
    # would decide where the tensors of every later pickle go.
    try:
        return _usual_load(*args, **options)
    finally:
        serialization._serialization_tls.map_location = None


@cache
def has_gpu() -> bool:
    """Return whether there is a GPU to pin memory for."""
    return bool(real_devices())


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` lies in pinned memory of the host."""
    if tensor.layout is torch.strided and _has_mark(tensor):
        return True
    return tensor.device.type == "cpu" and tensor.is_pinned()


def made_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a new tensor of the host as pinned: a copy, or marked so."""
    on_gpu = has_gpu() and tensor.device.type == "cpu"
    return tensor.pin_memory() if on_gpu else _mark(tensor)


def pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes its tensor, then marks it as pinned."""

    def make(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs.pop("pin_memory", None)
        tensor = original(*args, **kwargs)
        if not asked:
            return tensor
        if tensor.device.type == "sim":
            raise RuntimeError(NOT_ON_CPU)
        is_on_cpu = tensor.device.type == "cpu"  # not on "meta", as with CUDA
        return made_pinned(tensor) if is_on_cpu else tensor

    return make


def makers() -> list[tuple[Any, list[str]]]:
    """Return what of torch takes ``pin_memory=True``: owners and names."""
    if has_gpu():  # PyTorch asks CUDA before sim
        return []
    return [(torch, PINNING_FUNCTIONS), (torch.Tensor, PINNING_METHODS)]


def pinned_kernels() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield the name of each operation, its kernel and its dispatch key."""
    yield "is_pinned", _answer, "CPU"
    yield "_pin_memory", _pinned_copy, "CPU"
    yield "pin_memory", _refuse, "AutogradPrivateUse1"


def _answer(tensor: torch.Tensor, device: torch.device | None = None) -> bool:
    """Return whether a tensor on the CPU is pinned (for ``device``)."""
    if _has_mark(tensor):
        return True
    if device is None:
        return has_gpu() and _is_pinned_for_gpu(tensor)
    return bool(_is_pinned_on.call_boxed(_CPU_KEY, tensor, device))


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
    """Ask CUDA by name; without a name PyTorch would ask ``sim``."""
    # To give a name is deprecated. The user gave none and need not hear of
    # it: a filter is put first whenever another has come to be first. To take
    # it away again would disturb the filters of other threads.
    first = warnings.filters[0][1] if warnings.filters else None
    if getattr(first, "pattern", None) != _DEPRECATED:
        warnings.filterwarnings("ignore", _DEPRECATED, module=__name__)
    return torch.Tensor.is_pinned(tensor, "cuda")


def _mark(tensor: torch.Tensor) -> torch.Tensor:
    vars(tensor.untyped_storage())["dpkit_pinned"] = True
    return tensor


def _has_mark(tensor: torch.Tensor) -> bool:
    return hasattr(tensor.untyped_storage(), "dpkit_pinned")
