"""On what, with what and when something was measured."""

from __future__ import annotations

import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

CPU_FACTS = Path("/proc/cpuinfo")


def provenance(command: str, device: torch.device) -> dict[str, Any]:
    """Tell on what, with what and when numbers were measured.

    Args:
        command: What was run.
        device: What was measured.

    Example:
        >>> facts = provenance("python -m dpkit", torch.device("cpu"))
        >>> facts["command"], facts["device"]
        ('python -m dpkit', 'cpu')
    """
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
    """Return what a device is sold as, as far as the system tells it."""
    if device.type == "cpu":
        return cpu_name()
    return str(torch.get_device_module(device).get_device_name(device))


def cpu_name() -> str:
    """Return what the processor is sold as, as far as the system tells it."""
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
    facts = torch.get_device_module(device).get_device_properties(device)
    return int(facts.total_memory)
