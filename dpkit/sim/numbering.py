"""Which simulated device is meant: by its name, its number, or as current."""

from __future__ import annotations

import torch

from dpkit.sim.configuration import simulation

Device = torch.device | int | str | None


def device_count() -> int:
    """Return the number of simulated devices."""
    return int(simulation.settings["num_devices"])


def current_device() -> int:
    """Return the number of the device that plain ``"sim"`` means."""
    return min(simulation.current_device, device_count() - 1)


def set_device(device: Device) -> None:
    """Let plain ``"sim"`` mean ``device`` from now on.

    Raises:
        ValueError: it is a device of another kind.
        RuntimeError: there are fewer simulated devices.
    """
    found = full_device(device)
    if found.type != "sim":
        raise ValueError(f"not a simulated device (device: {device})")
    simulation.current_device = found.index


def full_device(device: Device) -> torch.device:
    """Return ``device`` with its number; refuse ``sim:i`` that is not there.

    Args:
        device: A device, its name, the number of a simulated one, or None
            for the current one. One of another kind is returned as it is.

    Raises:
        RuntimeError: there are fewer simulated devices.
    """
    if isinstance(device, int):
        device = torch.device("sim", device)
    device = torch.device(device or "sim")
    if device.type != "sim":
        return device
    index = current_device() if device.index is None else device.index
    if index >= device_count():
        raise RuntimeError(
            f"invalid device ordinal (device: {device}, simulated devices: "
            f"{device_count()})"
        )
    return torch.device("sim", index)
