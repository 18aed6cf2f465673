"""Time training steps of whole models on a GPU; record them.

Usage: python scripts/record.py gpu_steps [FILE [STEPS]]

Without a GPU it records nothing and says so. The file is written after each
model. `gpu_forecasts` simulates the same steps.

`make gpu-report` runs it, and leaves the record of the book as it is: the page
compares records of one GPU with each other.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch

import dpkit
from dpbook.limits.gpu_steps import CASES, Case, train
from dpkit.accelerator import real_devices
from recorders.provenance import DATA, provenance

RECORD = DATA / "gpu_steps.json"


def main(file: str | Path = RECORD, num_steps: int | str = 10) -> None:
    """Time the steps; write what they took."""
    if not real_devices():
        print("nothing to record: no GPU (torch sees: 0)")
        return
    (device,) = dpkit.devices(1, kind="cuda")
    rows = []
    for case in CASES:
        rows.append(row_of(case, device, int(num_steps)))
        print(rows[-1], flush=True)
        command = "python scripts/record.py gpu_steps"
        result = {"provenance": provenance(command), "steps": rows}
        Path(file).write_text(json.dumps(result, indent=1) + "\n")


def row_of(
    case: Case, device: torch.device, num_steps: int
) -> dict[str, str | int | float | bool]:
    """Return what a step takes.

    Raises:
        torch.OutOfMemoryError: the GPU has too little memory for the case;
            the steps before it are in the file.
    """
    return {
        "model": case.name,
        "batch": case.batch_size,
        "bfloat16": case.bfloat16,
    } | asdict(train(case, device, num_steps))
