"""Time operators on a GPU: in training steps, and convolutions and attention.

Usage: python scripts/record.py gpu_operators [FILE]

Without a GPU it records nothing and says so. The file is written after each
part; all of it takes about two minutes.

`make gpu-report` runs it, and leaves the record of the book as it is: the page
compares records of one GPU with each other.
"""

import json
from pathlib import Path
from typing import Any

import torch

import dpkit
from dpkit.accelerator import real_devices
from recorders.gpu.attention import time_attention
from recorders.gpu.convolutions import time_convolutions
from recorders.gpu.steps import operators_of, parts_of, trainings
from recorders.provenance import DATA, provenance

RECORD = DATA / "gpu_operators.json"


def main(file: str | Path = RECORD) -> None:
    """Time the operators; write what they took."""
    if not real_devices():
        print("nothing to record: no GPU (torch sees: 0)")
        return
    (device,) = dpkit.devices(1, kind="cuda")
    command = "python scripts/record.py gpu_operators"
    found: dict[str, Any] = {"provenance": provenance(command)}
    # All parts first: the profiler may slow the host down, also later.
    found["parts"] = [parts_of(training) for training in trainings(device)]
    write(file, found)
    found["operators"] = []
    for training in trainings(device):
        found["operators"] += operators_of(training)
        write(file, found)
    torch.cuda.empty_cache()
    found["convolutions"] = time_convolutions(device)
    write(file, found)
    found["attention"] = time_attention(device)
    write(file, found)


def write(file: str | Path, found: dict[str, Any]) -> None:
    """Write what has been timed so far."""
    Path(file).write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {Path(file).name}", flush=True)
