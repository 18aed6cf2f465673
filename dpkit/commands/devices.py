"""``python -m dpkit devices``: what this machine has."""

import argparse
import os

import torch

from dpkit import sim
from dpkit.accelerator import real_devices, why_unusable
from dpkit.calibration import cpu_name, device_name, memory_bytes
from dpkit.commands.parser import Commands
from dpkit.machine import devices
from dpkit.sim.devices import simulation
from dpkit.units import show_memory


def add_devices(commands: Commands) -> None:
    """Add the command to the parser of all."""
    shown = "tell what this machine has, and what would be used"
    show = commands.add_parser("devices", help=shown, description=shown)
    show.set_defaults(command=show_devices)


def show_devices(options: argparse.Namespace, command: str) -> None:
    """Print what this machine has, and what would be used."""
    # First: what holds the values of simulated devices depends on it.
    used = {f"dpkit.devices({k})": _used(k) for k in (1, 2, 8)}
    rows = {
        "torch": torch.__version__,
        "CPU": f"{cpu_name()}, {torch.get_num_threads()} threads",
        "GPUs": _gpus(),
        "simulated": _simulated(),
        "DPKIT_DEVICES": os.environ.get("DPKIT_DEVICES") or "not set",
        **used,
    }
    for name, value in rows.items():
        print(f"{name:<16} {value}")


def _gpus() -> str:
    """Return the GPUs that torch can use, and why it cannot use others."""
    found = [
        f"{device} {device_name(device)}, {show_memory(memory_bytes(device))}"
        for device in real_devices()
    ]
    reason = why_unusable()
    if not found:
        return f"none: {reason}" if reason else "none"
    return "; ".join([*found, f"not used: {reason}"] if reason else found)


def _simulated() -> str:
    """Return what is simulated, or why nothing can be."""
    try:
        sim.register()
    except RuntimeError as error:
        return f"none: {error}"
    return (
        f"{simulation.settings['num_devices']} × "
        f"{simulation.clock.cluster.name}, "
        f"{show_memory(simulation.memory.capacity)} each, values on "
        f"{simulation.backing}"
    )


def _used(count: int) -> str:
    """Return what ``dpkit.devices(count)`` gives, or why it gives nothing."""
    try:
        return ", ".join(map(str, devices(count)))
    except (RuntimeError, ValueError) as error:
        return f"none: {error}"
