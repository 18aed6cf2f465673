"""Print what this machine has, as JSON: for the head of the report."""

import json
from typing import Any

import torch
from recorders.provenance import provenance

from dpkit.accelerator import real_devices
from dpkit.calibration import device_name


def facts() -> dict[str, Any]:
    """Return on what, with what and when the parts run."""
    found = provenance() | {
        "command": "make gpu-report",
        "cuda": torch.version.cuda,
        "gpus": [device_name(device) for device in real_devices()],
    }
    return {
        name: "unknown" if value in ("", None) else value
        for name, value in found.items()
    }


if __name__ == "__main__":
    print(json.dumps(facts()))
