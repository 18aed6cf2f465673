"""Rerun the long experiments and record them in book/_data.

Usage: python scripts/reproduce.py

The recipe of the headline: LeNet on all of Fashion-MNIST, weights drawn with
standard deviation 0.01, batches of 256, learning rate 0.2, 10 epochs; on one
device and on two, with three random seeds each. It takes about ten minutes on
two CPU cores.
"""

import json
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn

import dpkit
from dpkit.accelerator import real_devices
from dpkit.calibration.provenance import cpu_name, device_name
from dpkit.lab.common.batches import Batches
from dpkit.lab.common.datasets import load_fashion_mnist
from dpkit.lab.common.models import lenet, lenet_params

REPOSITORY = Path(__file__).parent.parent
HEADLINE = REPOSITORY / "book" / "_data" / "headline.json"
RECIPE = {"scale": 0.01, "batch_size": 256, "lr": 0.2, "num_epochs": 10}
SEEDS = (0, 1, 2)
NUM_DEVICES = (1, 2)


def headline_run(num_devices: int, seed: int) -> dict[str, Any]:
    """Train LeNet once by the recipe; return what the run recorded."""
    train_set, test_set = load_fashion_mnist(full=True)
    batch_size = int(RECIPE["batch_size"])
    record = dpkit.train(
        lenet,
        nn.CrossEntropyLoss(reduction="none"),
        lenet_params(RECIPE["scale"], seed),
        Batches(*train_set, batch_size, shuffle=True, seed=seed),
        Batches(*test_set, batch_size),
        dpkit.devices(max(NUM_DEVICES))[:num_devices],  # of one kind
        RECIPE["lr"],
        int(RECIPE["num_epochs"]),
    )
    print(f"{num_devices} devices, seed {seed}: {record}", flush=True)
    return {
        "num_devices": num_devices,
        "seed": seed,
        "devices": [str(device) for device in record.devices],
        "accuracies": record.accuracies,
        "clock": record.clock,
        "seconds_per_epoch": [round(s, 4) for s in record.seconds],
    }


def provenance() -> dict[str, Any]:
    """Tell on what, with what and when the numbers were obtained."""
    return {
        "command": "make reproduce",
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain")),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "gpus": [device_name(gpu) for gpu in real_devices()],
        "driver": driver(),
    }


def git(*words: str) -> str:
    """Return what git prints, or nothing without it or a repository."""
    try:
        run = subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True
        )
    except FileNotFoundError:
        return ""
    return run.stdout.strip()


def driver() -> str:
    """Return the version of the driver of the GPUs; nothing without any."""
    if not real_devices():
        return ""
    query = ["--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(
            ["nvidia-smi", *query], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:  # not NVIDIA's, or not brought along
        return ""
    return run.stdout.split()[0]


def main() -> int:
    """Run the experiments; write what they gave when all have ended."""
    result: dict[str, Any] = {"provenance": provenance(), "recipe": RECIPE}
    result["runs"] = [headline_run(k, s) for k in NUM_DEVICES for s in SEEDS]
    HEADLINE.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {HEADLINE.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
