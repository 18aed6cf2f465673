"""Measure a device and make presets of it."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import torch

from dpkit.calibration.conditions import (
    compute_capability,
    device_name,
    memory_bytes,
)
from dpkit.calibration.fitted_presets import (
    Calibration,
    DeviceFacts,
    to_presets,
)
from dpkit.calibration.probes import Sizes, peer_of, probes
from dpkit.calibration.stopwatch import ROUNDS, fastest, measure, spread_of


def calibrate(
    device: torch.device,
    sizes: Sizes | None = None,
    rounds: int = ROUNDS,
    now: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measure a device by microbenchmarks, in about half a minute.

    Args:
        device: The CPU or GPU to measure.
        sizes: How large the tensors are; by default what suits the device.
        rounds: How often each probe is timed: the fastest time counts.
        now: A clock that returns seconds.

    Returns:
        Presets of the device, its host and its link.

    Raises:
        ValueError: times do not grow with sizes, so that no rate follows.
    """
    measured = measure(probes(device, sizes), rounds, now)
    name = device_name(device)
    about = DeviceFacts(
        name=name,
        memory_bytes=memory_bytes(device),
        synchronous=device.type == "cpu",
        peer_to_peer=_reaches_peer(device),
        compute_capability=compute_capability(device),
    )
    source = f"python -m dpkit calibrate on {name}, {date.today()}"
    found = to_presets(fastest(measured), about, source)
    return replace(found, spread=spread_of(measured))


def _reaches_peer(device: torch.device) -> bool:
    """Return whether another device is reached without the host."""
    if (peer := peer_of(device)) is None:
        return False
    module = torch.get_device_module(device)
    return bool(module.can_device_access_peer(device, peer))
