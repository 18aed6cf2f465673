"""``torch.accelerator``: a GPU's functions where there is one, else sim's.

PyTorch asks the backend from outside before it asks CUDA, and from a backend
made in Python it takes no answers: it reports device 0, refuses to wait, and
fails an assertion when asked for memory. So a function of a device module
stands in for each that ``torch.accelerator`` calls: of ``torch.cuda`` on a
machine with a GPU, which is as it was before, and else of ``torch.sim``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from dpkit.accelerator import real_devices
from dpkit.sim import seeds

# What torch.accelerator calls in torch._C -> its name in a device module.
NAMES = {
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


def accelerator() -> torch.device:
    """Return the kind of device that ``torch.accelerator`` stands for."""
    kinds = [device.type for device in real_devices()]
    return torch.device(kinds[0] if kinds else "sim")


def real_or_cpu() -> torch.device:
    """Return the kind of device that ``torch.distributed`` takes by itself."""
    kinds = [device.type for device in real_devices()]
    return torch.device(kinds[0] if kinds else "cpu")


def default_generator(index: int) -> torch._C.Generator:
    """Return the generator that a device draws from by default."""
    if accelerator().type == "sim":
        return seeds.default_generator(index)
    module = torch.get_device_module(accelerator())
    generator: torch._C.Generator = module.default_generators[index]
    return generator


def empty_host_cache() -> None:
    """Give back pinned memory; that of simulated devices is never kept."""
    if accelerator().type == "cuda":  # only on CUDA
        torch._C._host_emptyCache()


def replacements() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what is replaced in ``torch._C``, and by what."""
    functions: dict[str, Callable[..., Any]] = {
        "_accelerator_getAccelerator": accelerator,
        "_get_accelerator": real_or_cpu,  # only torch.distributed calls it
        "_accelerator_emptyHostCache": empty_host_cache,
        "_accelerator_getDefaultGenerator": default_generator,
        **{name: _call(function) for name, function in NAMES.items()},
    }
    for name, function in functions.items():
        if hasattr(torch._C, name):  # some are newer than torch 2.11
            yield name, function


def _call(name: str) -> Callable[..., Any]:
    """Return a function that calls ``name`` of the device module."""

    def call(*args: Any) -> Any:
        return getattr(torch.get_device_module(accelerator()), name)(*args)

    return call
