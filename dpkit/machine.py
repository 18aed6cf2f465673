"""The devices to train on, and the time their work takes.

This module and ``streams`` ask whether a device is a GPU, a simulated one or
the CPU. All else is one program for any of them.
"""

import os
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import torch

from dpkit import sim
from dpkit.accelerator import real_devices
from dpkit.arguments import Devices, device_list
from dpkit.sim.changes import why_apart
from dpkit.sim.devices import hold_on_gpu
from dpkit.units import check_count, show_seconds

UNWAITED = ("mps", "meta")  # torch waits for no single device of these
DEVICE_KINDS = ("cuda", "sim", "gpu", "cpu")


def devices(
    count: int | None = None, kind: str | None = None
) -> list[torch.device]:
    """Return ``count`` devices to train on, in order of rank.

    Args:
        count: How many. None means all there are, and one of the kind "cpu".
        kind: "cuda" (GPUs), "sim" (simulated devices, on any machine), "gpu"
            (either of the two) or "cpu" (the one CPU, ``count`` times). None
            means what the environment variable ``DPKIT_DEVICES`` says. Without
            it, None means GPUs where there are ``count`` of them, else
            simulated devices. If there is a GPU, it holds their numbers. Where
            PyTorch cannot train on both kinds in one process, None means
            simulated devices, and a warning says why. "gpu" means the same as
            None, but never the CPU: each device has a memory of its own.

    Raises:
        RuntimeError: there are fewer devices of this kind.

    Example:
        >>> dpkit.devices(2, kind="sim")
        [device(type='sim', index=0), device(type='sim', index=1)]
        >>> dpkit.devices(3, kind="cpu")
        [device(type='cpu'), device(type='cpu'), device(type='cpu')]
    """
    least = 1 if count is None else count
    check_count("count", least)
    kind = _asked_kind(kind)
    if kind == "cpu":
        return [torch.device("cpu")] * least
    gpus = [] if kind == "sim" else real_devices()
    if kind is None:
        kind = "cuda" if len(gpus) >= least and not _apart(gpus) else "sim"
        if kind == "sim" and gpus:
            hold_on_gpu()
    found = gpus if kind == "cuda" else _simulated_devices()
    if len(found) < least:
        advice = 'kind="sim" gives simulated ones'
        if kind == "sim":
            advice = f"dpkit.sim.configure(num_devices={least}) makes them"
        raise RuntimeError(
            f"too few {kind} devices (asked for: {count or 'all'}, there "
            f"are: {len(found)}); {advice}"
        )
    return found[:count]


def _asked_kind(kind: str | None) -> str | None:
    """Return the kind by argument or by environment.

    None: GPUs where there are enough of them, else simulated devices.
    """
    source, asked = "kind", kind
    if kind in (None, "gpu"):
        source = "DPKIT_DEVICES"
        kind = os.environ.get(source) or None
    if kind is not None and kind not in DEVICE_KINDS:
        raise ValueError(
            f"unknown kind of device ({source}: {kind!r}, known: "
            f"{', '.join(DEVICE_KINDS)})"
        )
    if asked == "gpu" and kind == "cpu":
        return "sim"
    return None if kind == "gpu" else kind


def _apart(gpus: list[torch.device]) -> bool:
    """Return whether simulated devices take the place of GPUs; warn if so.

    A later cell may ask for more devices than there are GPUs, or for simulated
    ones. If a process can have one kind alone, that has to be the kind of
    which there are always enough.
    """
    reason = why_apart()
    if reason:
        warnings.warn(
            "simulated devices take the place of GPUs, because a process "
            f"cannot train on both kinds (GPUs: {len(gpus)}, reason: "
            f"{reason}); if DPKIT_DEVICES is cuda, GPUs are used",
            stacklevel=3,
        )
    return bool(reason)


def _simulated_devices() -> list[torch.device]:
    sim.register()
    count = torch.get_device_module("sim").device_count()
    return [torch.device("sim", rank) for rank in range(count)]


def synchronize(devices: Iterable[torch.device]) -> None:
    """Wait until all work issued to ``devices`` is done.

    A GPU works on while Python has gone ahead: without this wait a clock
    stops before the work does. Where each simulated device has its own host,
    the hosts wait for each other too.

    Raises:
        ValueError: a device is of a kind that cannot be waited for.

    Example:
        >>> dpkit.synchronize(dpkit.devices(2, kind="sim"))
    """
    found = sorted(set(map(torch.device, device_list(devices))), key=str)
    for device in found:
        if device.type in UNWAITED:
            raise ValueError(
                "torch waits for no single device of this kind (device: "
                f"{device}); dpkit.devices() gives some that it waits for"
            )
    for device in found:
        if device.type != "cpu":
            torch.get_device_module(device).synchronize(device)
    sim.meet([device for device in found if device.type == "sim"])


def has_streams(device: torch.device) -> bool:
    """Return whether a device works in streams, while Python goes ahead."""
    return torch.device(device).type != "cpu"


@contextmanager
def random_states_kept(devices: Iterable[torch.device]) -> Iterator[None]:
    """Restore the generators of the CPU and of devices after a block."""
    found = {torch.device(d) for d in devices if has_streams(d)}
    indices = sorted(d.index for d in found)
    kind = next(iter(found)).type if found else "cpu"
    with torch.random.fork_rng(indices, device_type=kind):
        yield


def seed_device(device: torch.device, number: int) -> None:
    """Seed the generators of one device and of the CPU, not those of all."""
    torch.default_generator.manual_seed(number)
    if has_streams(device):
        module = torch.get_device_module(device)
        with module.device(device):
            module.manual_seed(number)


class Timer:
    """Measure the seconds that a block of work takes on some devices.

    All devices are waited for before the clock starts and before it stops.
    Simulated devices have simulated seconds, others those of the wall clock.

    Raises:
        ValueError: some devices are simulated and others are not.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> x = torch.ones(4000, 4000, device=devices[1])
        >>> with dpkit.Timer(devices) as timer:
        ...     total = x.sum()
        >>> timer
        Timer(97.62 µs, simulated (v100, nvlink2))
    """

    def __init__(self, devices: Devices) -> None:
        self.devices = device_list(devices)
        self.seconds = 0.0  #: how long the block took, once it has ended
        kinds = {torch.device(device).type for device in self.devices}
        self.simulated = "sim" in kinds  #: whether the devices are
        self.clock = self._clock()  #: "measured", or "simulated" and on what
        if self.simulated and len(kinds) > 1:
            raise ValueError(
                "simulated devices have a clock of their own (devices: "
                f"{', '.join(map(str, self.devices))})"
            )

    def __enter__(self) -> Self:
        self.clock = self._clock()
        self._start = self._now()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = self._now() - self._start

    def _now(self) -> float:
        """Return the time at which all work so far is done."""
        synchronize(self.devices)
        if not self.simulated:
            return time.perf_counter()
        return sim.now(torch.device(self.devices[0]))  # their hosts have met

    def _clock(self) -> str:
        return sim.label() if self.simulated else "measured"

    def __repr__(self) -> str:
        return f"Timer({show_seconds(self.seconds)}, {self.clock})"
