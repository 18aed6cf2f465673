"""Time epochs of LeNet whose images lie on the GPU; record them.

Usage: python scripts/record.py resident [FILE [EPOCHS]]

Without a GPU it records nothing and says so. The first epoch, which also
warms up, is recorded apart. The epochs that follow are those whose steps are
launched at once, by a CUDA graph.
"""

import json
import os
from pathlib import Path
from typing import Any

import dpkit
from dpbook.common.datasets import load_fashion_mnist
from dpbook.common.models import lenet_params
from dpbook.two_devices.runs import time_graphed_epoch, time_resident_epoch
from dpkit.accelerator import real_devices
from recorders.provenance import DATA, provenance

RECORD = DATA / "resident_epoch.json"


def main(file: str | Path = RECORD, num_epochs: int | str = 6) -> None:
    """Time the epochs; write what they took."""
    if not real_devices():
        print("nothing to record: no GPU (torch sees: 0)")
        return
    train_set, _ = load_fashion_mnist(full=True)
    devices = dpkit.devices(1, kind="cuda")
    params = dpkit.replicate(lenet_params(0.01), devices)
    seconds = [
        round(time_resident_epoch(train_set, params, devices).seconds, 4)
        for _ in range(int(num_epochs))
    ]
    result: dict[str, Any] = {
        "provenance": provenance("python scripts/record.py resident"),
        "images": len(train_set.labels),
        "seconds_of_the_first_epoch": seconds[0],
        "seconds_of_an_epoch": seconds[1:],
    }
    if devices[0].type == "cuda" and "CUDA_DOUBLE" not in os.environ:
        graphed = [
            round(
                time_graphed_epoch(train_set, params[0], *devices).seconds, 4
            )
            for _ in range(int(num_epochs))
        ]
        result["seconds_of_a_graphed_epoch"] = graphed
        print(f"launched at once, by a CUDA graph: {graphed}")
    else:
        print("no CUDA graph: this is a rehearsal, without a GPU")
    Path(file).write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {Path(file).name} ({seconds})")
