"""Time training steps of whole models on a GPU; record them.

Usage: python scripts/record.py gpu_steps [FILE [STEPS]]

Without a GPU it records nothing and says so. The file is written after each
model. What the simulation says of the same steps is not recorded: the page
computes it.
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
        result = {"provenance": provenance(), "steps": rows}
        Path(file).write_text(json.dumps(result, indent=1) + "\n")


def row_of(
    case: Case, device: torch.device, num_steps: int
) -> dict[str, str | int | float | bool]:
    """Return what a step takes, or why it could not be timed."""
    about = {
        "model": case.name,
        "batch": case.batch_size,
        "bfloat16": case.bfloat16,
    }
    try:
        return about | asdict(train(case, device, num_steps))
    except torch.OutOfMemoryError as error:
        return about | {"failed": str(error)}
