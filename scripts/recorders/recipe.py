"""Train ResNet-18 by a published recipe; record it in book/_data.

The recipe, its three ways and the network are those of
dpbook.data_parallelism_concise.recipe_runs; the images are all of
Fashion-MNIST at half size. It computes on the CPU with one thread, so that it
can be repeated, and takes about half an hour.
"""

from itertools import islice
from typing import Any

import torch

import dpkit
from dpbook.common.datasets import load_fashion_mnist
from dpbook.data_parallelism_concise.recipe_runs import (
    DEVIATION,
    WAYS,
    WIDTH,
    epochs_of,
    half_size,
)
from recorders.provenance import provenance, store

SEEDS = tuple(range(5))
NUM_EPOCHS = 10


def run(name: str, seed: int) -> dict[str, Any]:
    """Train once in one of the ways; return what each epoch gave."""
    train_set, test_set = map(half_size, load_fashion_mnist(full=True))
    devices = dpkit.devices(2, kind="cpu")
    epochs = list(
        islice(
            epochs_of(
                WAYS[name],
                seed,
                train_set=train_set,
                test_set=test_set,
                devices=devices,
            ),
            NUM_EPOCHS,
        )
    )
    print(f"{name}, seed {seed}: {epochs[-1]}", flush=True)
    return {
        "way": name,
        "seed": seed,
        "losses": [round(e.loss, 4) for e in epochs],
        "accuracies": [e.accuracy for e in epochs],
        "accuracies_of_batches": [e.accuracy_of_batches for e in epochs],
    }


def main() -> None:
    """Run all; write what they gave when all have ended."""
    torch.set_num_threads(1)
    recipe = {
        "width": WIDTH,
        "deviation": DEVIATION,
        "num_epochs": NUM_EPOCHS,
        "ways": {name: vars(way) for name, way in WAYS.items()},
    }
    command = "python scripts/record.py recipe"
    result: dict[str, Any] = {
        "provenance": provenance(command),
        "recipe": recipe,
    }
    result["runs"] = [run(name, seed) for name in WAYS for seed in SEEDS]
    store("resnet18_recipe", result)
