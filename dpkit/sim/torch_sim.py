"""The module ``torch.sim``, which mirrors ``torch.cuda``.

What it imports under these names is part of it.
"""

# ruff: noqa: F401

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import OutOfMemoryError

from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import (
    DeviceLike,
    current_device,
    device_count,
    full_device,
    set_device,
)
from dpkit.sim.graphs import CUDAGraph, graph, graph_pool_handle
from dpkit.sim.graphs import is_capturing as is_current_stream_capturing
from dpkit.sim.operators.random_numbers import (
    default_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from dpkit.sim.operators.random_numbers import manual_seed as manual_seed_all
from dpkit.sim.operators.random_numbers import seed_all as seed
from dpkit.sim.streams.streams import SimEvent as Event
from dpkit.sim.streams.streams import SimStream as Stream
from dpkit.sim.streams.streams import (
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from dpkit.sim.streams.streams import wait_for_device as synchronize


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
    compute_capability: str  # "9.0"; "" if the preset has none

    @property
    def major(self) -> int:
        """The first number of the compute capability."""
        return self._capability()[0]

    @property
    def minor(self) -> int:
        """The second number of the compute capability."""
        return self._capability()[1]

    def _capability(self) -> list[int]:
        if not self.compute_capability:
            raise AttributeError(
                "this preset has no compute capability: it is no GPU of "
                f"NVIDIA's, or does not say (accelerator: {self.name!r})"
            )
        return [int(n) for n in self.compute_capability.split(".")]


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return the name, the memory and the capability of ``device``."""
    full_device(device)
    preset = simulation.clock.cluster.accelerator
    return DeviceProperties(
        preset.name, simulation.memory.capacity, preset.compute_capability
    )


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return the compute capability of ``device``: (9, 0) of an H100."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device computes in bfloat16.

    Without ``including_emulation``: whether it has instructions for that,
    which NVIDIA's GPUs have from compute capability 8.0 on.
    """
    return including_emulation or is_tf32_supported()


def is_tf32_supported() -> bool:
    """Return whether the current device can round products to TF32."""
    properties = get_device_properties()
    return bool(properties.compute_capability) and properties.major >= 8


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of the preset of ``device``."""
    return get_device_properties(device).name


def can_device_access_peer(
    device: DeviceLike, peer_device: DeviceLike
) -> bool:
    """Return whether copies between two devices go past the host."""
    cluster = simulation.clock.cluster
    node = cluster.node_of(full_device(device).index)
    peer_node = cluster.node_of(full_device(peer_device).index)
    return node == peer_node and cluster.link.peer_to_peer


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors on ``device`` occupy."""
    return simulation.memory.live[full_device(device).index]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that they have occupied at once."""
    return simulation.memory.peak[full_device(device).index]


# What is freed is free at once: no memory is reserved besides.
memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def memory_stats_as_nested_dict(
    device: DeviceLike = None,
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the bytes occupied now and at most, by CUDA's names for them."""
    now = memory_allocated(device)
    most = max_memory_allocated(device)
    kinds = ("allocated_bytes", "active_bytes", "reserved_bytes")
    return {kind: {"all": {"current": now, "peak": most}} for kind in kinds}


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Return the same as "allocated_bytes.all.peak", and what ran out.

    "num_ooms" is how often memory was out. No allocation is tried again.
    """
    nested = memory_stats_as_nested_dict(device)
    stats = {
        f"{kind}.{pool}.{when}": value
        for kind, pools in nested.items()
        for pool, values in pools.items()
        for when, value in values.items()
    }
    refusals = simulation.memory.refusals[full_device(device).index]
    return {**stats, "num_ooms": refusals, "num_alloc_retries": 0}


def memory_summary(
    device: DeviceLike = None, abbreviated: bool = False
) -> str:
    """Return these in lines of text."""
    stats = memory_stats(device)
    return "\n".join(f"{name}: {value}" for name, value in stats.items())


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Restart max_memory_allocated from what is occupied now."""
    memory = simulation.memory
    index = full_device(device).index
    memory.peak[index] = memory.live[index]


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Restart the count of how often memory was out."""
    simulation.memory.refusals[full_device(device).index] = 0


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the free and the total bytes of ``device``."""
    capacity = simulation.memory.capacity
    return capacity - memory_allocated(device), capacity


def empty_cache() -> None:
    """Do nothing: what is freed is free at once."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast may be asked for.

    CUDA lets a program ask for any. PyTorch checks those of other backends.
    """
    return [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def _is_in_bad_fork() -> bool:
    return False


def _exchange_device(index: int) -> int:
    """Change the current device; return the one before."""
    before = current_device()
    if index >= 0:  # torch takes a negative number for: leave it
        set_device(index)
    return before


_maybe_exchange_device = _exchange_device
