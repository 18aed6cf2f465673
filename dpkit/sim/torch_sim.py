"""The module ``torch.sim``, which mirrors ``torch.cuda``.

What it imports under these names is part of it.
"""

# ruff: noqa: F401

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import OutOfMemoryError

from dpkit.sim.configuration import simulation
from dpkit.sim.device_names import (
    DeviceLike,
    current_device,
    device_count,
    full_device,
    set_device,
)
from dpkit.sim.random_numbers import (
    default_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from dpkit.sim.random_numbers import manual_seed as manual_seed_all
from dpkit.sim.random_numbers import seed_all as seed
from dpkit.sim.streams import SimEvent as Event
from dpkit.sim.streams import SimStream as Stream
from dpkit.sim.streams import (
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from dpkit.sim.streams import wait_for_device as synchronize


def is_available() -> bool:
    """Return True: there are always simulated devices, ready for use."""
    return True


is_initialized = is_available


@contextmanager
def device(chosen: DeviceLike) -> Iterator[None]:
    """Make ``chosen`` the current device in a block."""
    before = simulation.current_device
    set_device(chosen)
    try:
        yield
    finally:
        simulation.current_device = before


@dataclass(frozen=True)
class DeviceProperties:
    """What a simulated device is: its preset, and its memory in bytes."""

    name: str
    total_memory: int


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return the name and the memory of ``device``."""
    full_device(device)
    name = simulation.clock.cluster.accelerator.name
    return DeviceProperties(name, simulation.memory.capacity)


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of the preset of ``device``."""
    return get_device_properties(device).name


def can_device_access_peer(
    device: DeviceLike, peer_device: DeviceLike
) -> bool:
    """Return whether copies between two devices go past the host."""
    cluster = simulation.clock.cluster
    ends = full_device(device).index, full_device(peer_device).index
    one_node = cluster.node_of(ends[0]) == cluster.node_of(ends[1])
    return one_node and cluster.link.peer_to_peer


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors on ``device`` occupy."""
    return simulation.memory.live[full_device(device).index]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that they have occupied at once."""
    return simulation.memory.peak[full_device(device).index]


def memory_stats_as_nested_dict(
    device: DeviceLike = None,
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the bytes occupied now and at most, by CUDA's names for them."""
    now, most = memory_allocated(device), max_memory_allocated(device)
    kinds = ("allocated_bytes", "reserved_bytes")
    return {kind: {"all": {"current": now, "peak": most}} for kind in kinds}


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Restart max_memory_allocated from what is occupied now."""
    memory, index = simulation.memory, full_device(device).index
    memory.peak[index] = memory.live[index]


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Do nothing: no sums over time are kept."""
    full_device(device)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
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
    """Change the current device; return the one before."""
    before = current_device()
    if index >= 0:  # torch takes a negative number for: leave it
        set_device(index)
    return before


_maybe_exchange_device = _exchange_device
