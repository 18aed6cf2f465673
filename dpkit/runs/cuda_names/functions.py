"""The functions of torch that read the name of a device, or tell one."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from dpkit.runs.cuda_names.names import (
    is_inside,
    number_seen,
    seen,
    seen_kind,
    simulated,
    simulated_kind,
    simulated_number,
    visible_count,
)
from dpkit.sim import torch_sim
from dpkit.sim.devices import device_of

# What takes ``device=``, besides NUMBERED in dpkit.sim.devices.names.
FACTORIES = (
    *("arange", "bartlett_window", "blackman_window", "empty", "empty_like"),
    *("empty_permuted", "empty_strided", "eye", "full", "full_like"),
    *("hamming_window", "hann_window", "kaiser_window", "linspace"),
    *("logspace", "normal", "ones", "ones_like", "rand", "rand_like"),
    *("randint", "randint_like", "randn", "randn_like", "randperm", "range"),
    *("scalar_tensor", "sparse_coo_tensor", "sparse_csr_tensor"),
    *("tril_indices", "triu_indices", "zeros", "zeros_like"),
)
OF_FFT = ("fftfreq", "rfftfreq")
METHODS = (
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
)

# -- what reads a device


def device_read(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reads ``device=`` as a simulated device."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = simulated(kwargs["device"])
        return original(*args, **kwargs)

    return call


def target_read(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method ``to`` that reads where it moves tensors to.

    ``x.to(1)`` names a device by its number.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = simulated_number(kwargs["device"])
        if args:
            args = (simulated_number(args[0]), *args[1:])
        return original(self, *args, **kwargs)

    return call


def kind_read(position: int, name: str) -> Callable[..., Any]:
    """Return a wrapper for functions that take a kind of device.

    Args:
        position: Where it stands among the arguments.
        name: Its name.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in kwargs:
                kwargs[name] = simulated_kind(kwargs[name])
            if len(args) > position:
                read = simulated_kind(args[position])
                args = (*args[:position], read, *args[position + 1 :])
            return original(*args, **kwargs)

        return call

    return wrap


def to_cuda(
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """Stand in for ``torch.Tensor.cuda``."""
    target = simulated_number("cuda" if device is None else device)
    return self.to(
        target, non_blocking=non_blocking, memory_format=memory_format
    )


def device_id_read(original: Callable[..., None]) -> Callable[..., None]:
    """Return a function that reads ``device_id``, which may be a number."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> None:
        if "device_id" in kwargs:
            kwargs["device_id"] = simulated_number(kwargs["device_id"])
        original(*args, **kwargs)

    return call


def devices_of_ddp(original: Callable[..., None]) -> Callable[..., None]:
    """Return an ``__init__`` of PyTorch's DDP that reads ``device_ids``."""

    @wraps(original)
    def init(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        given = list(args)
        if given and given[0] is not None:
            given[0] = [simulated_number(value) for value in given[0]]
        if kwargs.get("device_ids") is not None:
            ids = kwargs["device_ids"]
            kwargs["device_ids"] = [simulated_number(value) for value in ids]
        if len(given) > 1:
            given[1] = simulated_number(given[1])
        if "output_device" in kwargs:
            kwargs["output_device"] = simulated_number(kwargs["output_device"])
        original(self, module, *given, **kwargs)

    return init


def stream_made(original: Callable[..., None]) -> Callable[..., None]:
    """Return an ``__init__`` of streams that reads a program's device."""

    @wraps(original)
    def init(self: Any, device: Any = None, *args: Any, **kwargs: Any) -> None:
        found = device if is_inside() else simulated_number(device)
        original(self, found, *args, **kwargs)

    return init


# -- what tells a device


def device_shown(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns a device, for a program as CUDA's."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return found if found is None or is_inside() else seen(found)

    return call


def number_shown(original: Callable[..., int]) -> Callable[..., int]:
    """Return a ``get_device`` that tells a program one of its numbers."""

    def call(tensor: torch.Tensor) -> int:
        number = original(tensor)
        if device_of(tensor).type != "sim" or is_inside():
            return number
        return number_seen(number)

    return call


def module_shown(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``get_device_module`` that a program gets torch.cuda from."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        is_sim = found is torch_sim and not is_inside()
        return torch.cuda if is_sim else found

    return call


def module_of_mesh(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``_get_device_handle`` by which a mesh chooses a device.

    It chooses by LOCAL_RANK, a number of CUDA's: each node has a GPU 0.
    """

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return torch.cuda if found is torch_sim else found

    return call


def attribute_shown(name: str) -> property:
    """Return a property that shows a program an attribute, a device.

    Args:
        name: The name of the attribute, which the object goes on to hold.
    """

    def get(self: Any) -> torch.device:
        device: torch.device = vars(self)[name]
        return device if is_inside() else seen(device)

    return property(get, lambda self, value: vars(self).update({name: value}))


def property_shown(original: Any) -> property:
    """Return a property that shows a program what another one returns.

    Args:
        original: A property, which returns a device or a kind of device.
    """

    def get(self: Any) -> Any:
        found = original.__get__(self)
        if is_inside():
            return found
        return seen_kind(found) if type(found) is str else seen(found)

    return property(get)


# -- torch.accelerator

ACCELERATOR_FUNCTIONS = (
    *("set_device_index", "synchronize", "current_stream"),
    *("memory_allocated", "max_memory_allocated", "memory_reserved"),
    *("max_memory_reserved", "memory_stats", "get_memory_info"),
    *("reset_peak_memory_stats", "reset_accumulated_memory_stats"),
)


def numbers_of_program(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reads the devices that a program numbers."""

    @wraps(original)
    def call(*args: Any) -> Any:
        read = args if is_inside() else map(simulated_number, args)
        return original(*read)

    return call


def current_device_seen(original: Callable[[], int]) -> Callable[[], int]:
    """Return a function that returns the number of the current device."""

    @wraps(original)
    def call() -> int:
        number = original()
        return number if is_inside() else number_seen(number)

    return call


def number_of_devices(original: Callable[[], int]) -> Callable[[], int]:
    """Return a function that counts the devices that a program sees."""

    @wraps(original)
    def call() -> int:
        return original() if is_inside() else visible_count()

    return call


def block_on_device(original: Callable[..., None]) -> Callable[..., None]:
    """Return an ``__init__`` of ``torch.accelerator.device_index``."""

    @wraps(original)
    def init(self: Any, device: int | None) -> None:
        is_number = device is not None and not is_inside()
        original(self, simulated_number(device).index if is_number else device)

    return init
