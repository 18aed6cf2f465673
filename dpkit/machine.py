"""The devices at hand, and the time their work takes.

The only file that asks whether a device is a GPU, a simulated one or the CPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import torch

from dpkit import sim

KINDS = ("cuda", "sim", "cpu")


def devices(
    count: int | None = None, kind: str | None = None
) -> list[torch.device]:
    """Return ``count`` devices to train on.

    Args:
        count: How many. None means all there are, and one of the kind "cpu".
        kind: "cuda" (GPUs), "sim" (simulated devices, on any machine) or
            "cpu" (the one CPU, ``count`` times). None means what the
            environment variable ``DPKIT_DEVICES`` says; if it says nothing,
            GPUs where there are ``count`` of them, else simulated devices.

    Returns:
        The devices in order of rank, so that ``devices[rank]`` is a rank's.

    Raises:
        ValueError: ``count`` is below one, or ``kind`` is unknown.
        RuntimeError: there are fewer devices of this kind than asked for.

    Example:
        >>> import dpkit
        >>> dpkit.devices(2, kind="sim")
        [device(type='sim', index=0), device(type='sim', index=1)]
        >>> dpkit.devices(3, kind="cpu")
        [device(type='cpu'), device(type='cpu'), device(type='cpu')]
    """
    if count is not None and count < 1:
        raise ValueError(
            f"the number of devices is below one (count: {count})"
        )
    kind = _kind(count, kind)
    if kind == "cpu":
        return [torch.device("cpu")] * (count or 1)
    if kind == "sim":
        sim.register()
    available = _available(kind)
    if available < max(count or 1, 1):
        advice = '; kind="sim" gives simulated ones' if kind != "sim" else ""
        raise RuntimeError(
            f"too few {kind} devices (asked for: {count or 'all'}, there "
            f"are: {available}){advice}"
        )
    return [torch.device(kind, rank) for rank in range(count or available)]


def _kind(count: int | None, kind: str | None) -> str:
    """Return the kind asked for, by argument, environment or default."""
    source = "kind"
    if kind is None and os.environ.get("DPKIT_DEVICES"):
        source, kind = "DPKIT_DEVICES", os.environ["DPKIT_DEVICES"]
    if kind is None:
        return "cuda" if _available("cuda") >= (count or 1) else "sim"
    if kind not in KINDS:
        raise ValueError(
            f"unknown kind of device ({source}: {kind!r}, known: "
            f"{', '.join(KINDS)})"
        )
    return kind


def _available(kind: str) -> int:
    """Return how many devices of a kind there are."""
    count: int = torch.get_device_module(kind).device_count()
    return count


def synchronize(devices: Iterable[torch.device]) -> None:
    """Wait until all work issued to ``devices`` is done.

    A GPU works on while Python has gone ahead: without this wait a clock
    stops before the work does. Every device is waited for, not the current
    one alone.

    Example:
        >>> import dpkit
        >>> dpkit.synchronize(dpkit.devices(2, kind="sim"))
    """
    for device in set(map(torch.device, devices)):
        if device.type != "cpu":
            torch.get_device_module(device).synchronize(device)


class Timer:
    """Measure the seconds that a block of work takes on some devices.

    All devices are waited for before the clock starts and before it stops.
    The seconds are those of the wall clock.

    Args:
        devices: The devices that the work runs on.

    Attributes:
        seconds: How long the block took; zero before it has ended.

    Example:
        >>> import dpkit, torch
        >>> devices = dpkit.devices(2, kind="sim")
        >>> with dpkit.Timer(devices) as timer:
        ...     total = torch.ones(3, device=devices[1]).sum()
        >>> 0 < timer.seconds < 60
        True
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.devices = list(devices)
        self.seconds = 0.0

    def __enter__(self) -> Self:
        synchronize(self.devices)
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        synchronize(self.devices)
        self.seconds = time.perf_counter() - self._start
