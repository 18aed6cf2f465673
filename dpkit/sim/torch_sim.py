"""The module ``torch.sim``, which mirrors ``torch.cuda``."""

from __future__ import annotations

import torch

NUM_DEVICES = 8


def is_available() -> bool:
    """Tell whether there are simulated devices: always."""
    return True


def is_initialized() -> bool:
    """Tell whether the devices are ready for use: always."""
    return True


def device_count() -> int:
    """Return the number of simulated devices."""
    return NUM_DEVICES


def current_device() -> int:
    """Return the index of the device that plain ``"sim"`` means."""
    return 0


def synchronize(device: torch.device | int | None = None) -> None:
    """Wait for the work on ``device``; it is done when its call returns."""


def manual_seed_all(seed: int) -> None:
    """Do nothing: random numbers come from the CPU's generator."""


def get_rng_state(device: torch.device | int | str = "sim") -> torch.Tensor:
    """Return the state of the generator, which is the CPU's."""
    return torch.get_rng_state()


def set_rng_state(
    state: torch.Tensor, device: torch.device | int | str = "sim"
) -> None:
    """Set the state of the generator, which is the CPU's."""
    torch.set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that autocast may be asked for."""
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return False


def full_device(device: torch.device | str | None) -> torch.device:
    """Return ``device`` with its index; refuse ``sim:i`` that is not there.

    Raises:
        RuntimeError: there are fewer simulated devices.
    """
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
