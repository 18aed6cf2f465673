"""The module ``torch.sim``, which mirrors ``torch.cuda``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dpkit.sim.configuration import simulation
from dpkit.sim.numbering import (
    Device,
    current_device,
    device_count,
    full_device,
    set_device,
)
from dpkit.sim.seeds import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from dpkit.sim.streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_stats_as_nested_dict",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

OutOfMemoryError = torch.OutOfMemoryError


def is_available() -> bool:
    """Tell whether there are simulated devices: always."""
    return True


def is_initialized() -> bool:
    """Tell whether the devices are ready for use: always."""
    return True


@contextmanager
def device(chosen: Device) -> Iterator[None]:
    """Let plain ``"sim"`` mean ``chosen`` in a block."""
    before = simulation.current_device
    set_device(chosen)
    try:
        yield
    finally:
        simulation.current_device = before


def synchronize(device: Device = None) -> None:
    """Let the host wait for all work on ``device``; None: the current one."""
    simulation.clock.wait(full_device(device).index)


@dataclass(frozen=True)
class DeviceProperties:
    """What a simulated device is.

    Attributes:
        name: The name of its preset.
        total_memory: Its memory in bytes.
    """

    name: str
    total_memory: int


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return the name and the memory of ``device``."""
    full_device(device)
    name = simulation.clock.cluster.accelerator.name
    return DeviceProperties(name, simulation.memory.capacity)


def get_device_name(device: Device = None) -> str:
    """Return the name of the preset of ``device``."""
    return get_device_properties(device).name


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Tell whether copies between two devices go past the host."""
    cluster = simulation.clock.cluster
    ends = full_device(device).index, full_device(peer_device).index
    one_node = cluster.node_of(ends[0]) == cluster.node_of(ends[1])
    return one_node and cluster.link.peer_to_peer


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors on ``device`` occupy."""
    return simulation.memory.live[full_device(device).index]


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that they have occupied at once."""
    return simulation.memory.peak[full_device(device).index]


def memory_stats_as_nested_dict(
    device: Device = None,
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the bytes occupied now and at most, by CUDA's names for them.

    What is occupied is what is reserved: nothing that is freed is kept.
    """
    now, most = memory_allocated(device), max_memory_allocated(device)
    kinds = ("allocated_bytes", "reserved_bytes")
    return {kind: {"all": {"current": now, "peak": most}} for kind in kinds}


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let max_memory_allocated begin again with what is occupied now."""
    memory, index = simulation.memory, full_device(device).index
    memory.peak[index] = memory.live[index]


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Do nothing: no sums over time are kept."""
    full_device(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total bytes of ``device``."""
    capacity = simulation.memory.capacity
    return capacity - memory_allocated(device), capacity


def empty_cache() -> None:
    """Do nothing: what is freed is free at once."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast may be asked for."""
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return False


def _exchange_device(index: int) -> int:
    """Let plain ``"sim"`` mean another device; return which it meant."""
    before = current_device()
    if index >= 0:  # torch takes a negative number for: leave it
        set_device(index)
    return before


_maybe_exchange_device = _exchange_device
