"""Which device a name means: plain ``"sim"``, a number, the accelerator.

Plain ``"sim"`` is the current device. PyTorch's C++ asks a backend for that
one, and takes ``sim:0`` for the answer of a backend that is made in Python:
``x.to("sim")`` would go there, whatever ``torch.sim.set_device`` said. So what
reads a device in C++ is given one with a number. All else leaves the name as
it is until ``dpkit.sim`` reads it.

``torch.accelerator`` stands for a GPU where there is one, else for sim. C++
would pass its calls on to a backend that is made in Python, which has no
answer to most. So a function of a device module, ``torch.cuda`` or
``torch.sim``, stands in for each that ``torch.accelerator`` calls. What the
accelerator is in C++, ``mixed_backends`` decides.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from dpkit.accelerator import real_devices
from dpkit.sim.changes.mixed_backends import is_on_sim
from dpkit.sim.devices.configuration import DEVICES_OF_TORCH, simulation

DeviceLike = torch.device | int | str | None

# What reads the name of a device in C++.
NUMBERED: dict[Any, list[str]] = {
    torch.Tensor: ["to", "new_tensor"],
    torch: ["tensor", "as_tensor", "asarray"],
}

# What torch.accelerator calls in torch._C -> its name in a device module.
ACCELERATOR_CALLS = {
    "_accelerator_emptyCache": "empty_cache",
    "_accelerator_exchangeDevice": "_exchange_device",
    "_accelerator_getDeviceIndex": "current_device",
    "_accelerator_getDeviceStats": "memory_stats_as_nested_dict",
    "_accelerator_getMemoryInfo": "mem_get_info",
    "_accelerator_getStream": "current_stream",
    "_accelerator_isAllocatorInitialized": "is_initialized",
    "_accelerator_maybeExchangeDevice": "_maybe_exchange_device",
    "_accelerator_resetAccumulatedStats": "reset_accumulated_memory_stats",
    "_accelerator_resetPeakStats": "reset_peak_memory_stats",
    "_accelerator_setDeviceIndex": "set_device",
    "_accelerator_setStream": "set_stream",
    "_accelerator_synchronizeDevice": "synchronize",
}


#: Return the device of a tensor. In the blocks of ``as_cuda`` a program is
#: told another one by ``x.device``, and asking so takes longer.
device_of: Callable[[torch.Tensor], torch.device]
device_of = vars(torch._C.TensorBase)["device"].__get__


def read(value: Any) -> Any:
    """Return what is meant by a device; ``as_cuda`` puts another in place."""
    return value


def read_numbered(value: Any) -> Any:
    """Return what is meant by a device or by its number, an int.

    ``as_cuda`` puts another in place.
    """
    return value


def shown(device: torch.device) -> torch.device:
    """Return how a device is printed; ``as_cuda`` puts another in place."""
    return device


def device_count() -> int:
    """Return how many simulated devices have a number in torch."""
    return min(int(simulation.settings["num_devices"]), DEVICES_OF_TORCH)


def current_device() -> int:
    """Return the number of the device that plain ``"sim"`` means."""
    return min(simulation.current_device, device_count() - 1)


def set_device(device: DeviceLike) -> None:
    """Make ``device`` the current one, which plain ``"sim"`` means."""
    found = full_device(device)
    if found.type != "sim":
        raise ValueError(f"not a simulated device (device: {device})")
    simulation.current_device = found.index


def full_device(device: DeviceLike) -> torch.device:
    """Return ``device``, or the current one, with a number that is there."""
    if isinstance(device, int):
        device = torch.device("sim", device)
    else:
        device = torch.device(read(device or "sim"))
    if device.type != "sim":
        return device
    index = current_device() if device.index is None else device.index
    if not 0 <= index < device_count():  # torch counts 130 as -126
        raise RuntimeError(
            f"invalid device ordinal (device: {device}, simulated devices: "
            f"{device_count()})"
        )
    return torch.device("sim", index)


def numbered(value: Any) -> Any:
    """Return a device with its number for plain sim, all else as it is."""
    value = read(value)
    is_plain = type(value) in (str, torch.device) and str(value) == "sim"
    return full_device(value) if is_plain else value


def numbering(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that numbers the device that it is given."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = numbered(kwargs["device"])
        return original(*map(numbered, args), **kwargs)

    return call


# The device of ``with torch.device("sim"):`` is kept by its name, and read
# with its number.
device_of_block = property(
    lambda context: numbered(vars(context)["device"]),
    lambda context, device: vars(context).update(device=device),
)


def accelerator() -> torch.device:
    """Return the kind of device that ``torch.accelerator`` stands for."""
    kinds = [] if is_on_sim() else [d.type for d in real_devices()]
    return torch.device(kinds[0] if kinds else "sim")


def _accelerator_generator(index: int) -> Any:
    """Return the generator that a device draws from by default."""
    module = torch.get_device_module(accelerator())
    if accelerator().type == "sim":
        return module.default_generator(index)
    return module.default_generators[index]


def _empty_host_cache() -> None:
    """Give back pinned memory; that of simulated devices is never kept."""
    if accelerator().type == "cuda":  # only on CUDA
        torch._C._host_emptyCache()


def accelerator_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what is replaced in ``torch._C``, and by what."""
    functions: dict[str, Callable[..., Any]] = {
        "_accelerator_getAccelerator": accelerator,
        "_accelerator_emptyHostCache": _empty_host_cache,
        "_accelerator_getDefaultGenerator": _accelerator_generator,
        **{name: _call(to) for name, to in ACCELERATOR_CALLS.items()},
    }
    for name, function in functions.items():
        if hasattr(torch._C, name):  # some are newer than torch 2.11
            yield name, function


def _call(name: str) -> Callable[..., Any]:
    """Return a function that calls ``name`` of the device module."""

    def call(*args: Any) -> Any:
        return getattr(torch.get_device_module(accelerator()), name)(*args)

    return call
