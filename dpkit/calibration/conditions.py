"""On what, when and how undisturbed something was measured."""

import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

CPU_FACTS = Path("/proc/cpuinfo")
MOST_SPREAD = 0.2  # 0.5 to 1.5 on cores that had four times their work


def provenance(command: str, device: torch.device) -> dict[str, Any]:
    """Return where, with what software and when a command measured."""
    return {
        "command": command,
        "date": date.today().isoformat(),
        "device": str(device),
        "device_name": device_name(device),
        "cpu": cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def device_name(device: torch.device) -> str:
    """Return the product name of a device, as the system has it."""
    if device.type == "cpu":
        return cpu_name()
    return str(torch.get_device_module(device).get_device_name(device))


def cpu_name() -> str:
    """Return the product name of the processor, as the system has it."""
    try:
        lines = CPU_FACTS.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(": ")[1] for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def memory_bytes(device: torch.device) -> int:
    """Return the size of the memory of a device."""
    if device.type == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_properties(device).total_memory)


def compute_capability(device: torch.device) -> str:
    """Return the compute capability of a GPU, "9.0"; "" if it has none."""
    if device.type == "cpu":
        return ""
    facts = _properties(device)
    return f"{facts.major}.{facts.minor}" if hasattr(facts, "major") else ""


def _properties(device: torch.device) -> Any:
    return torch.get_device_module(device).get_device_properties(device)


def machine_load() -> float:
    """Return how many programs ran or waited to run; 0 if unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def doubts(spread: float, load: float, threads: int) -> list[str]:
    """Return the reasons why measurements may be wrong, with the figures.

    Args:
        spread: How far the median repetition lies above the fastest, as a
            share of it.
        load: How many programs ran or waited to run; see
            :func:`machine_load`.
        threads: How many threads the measured program has.

    Returns:
        A sentence for each reason; none if there is no doubt.
    """
    found = []
    cores = os.cpu_count() or 1
    if load + threads > cores + 0.5:  # what starts Python may linger
        found.append(
            f"the machine was busy (load: {load:.1f}, threads: {threads}, "
            f"cores: {cores}), by the load of the last minute"
        )
    if spread > MOST_SPREAD:
        found.append(
            "repetitions were not steady (median above the fastest: "
            f"{100 * spread:.0f} %, quiet machines: below "
            f"{100 * MOST_SPREAD:.0f} %)"
        )
    return found
