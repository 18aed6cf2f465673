"""Train by the recipe of the headline; record it in book/_data.

It trains LeNet on all of Fashion-MNIST, on one device and on two, with three
random seeds each. Weights are drawn with standard deviation 0.01; batches
have 256 images, the learning rate is 0.2, and there are 10 epochs. It takes
about ten minutes on two CPU cores.
"""

from typing import Any

from torch import nn

import dpkit
from dpbook.common.batches import Batches
from dpbook.common.datasets import load_fashion_mnist
from dpbook.common.models import lenet, lenet_params
from recorders.provenance import provenance, store

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


def main() -> None:
    """Run the experiments; write what they gave when all have ended."""
    command = "python scripts/record.py headline"
    result: dict[str, Any] = {
        "provenance": provenance(command),
        "recipe": RECIPE,
    }
    result["runs"] = [headline_run(k, s) for k in NUM_DEVICES for s in SEEDS]
    store("headline", result)
