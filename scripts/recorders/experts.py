"""Train the small network of experts, and record how busy they were.

It is trained with each remedy of dpbook.experts.training, from five seeds. It
takes about three minutes on one CPU core.
"""

from dataclasses import asdict
from typing import Any

import torch
from tqdm import tqdm

from dpbook.common.datasets import load_fashion_mnist
from dpbook.experts.training import REMEDIES, train
from recorders.provenance import provenance, store

SEEDS, EPOCHS = range(5), 5


def main() -> None:
    """Train; write what came out when all runs have ended."""
    torch.set_num_threads(1)
    data = load_fashion_mnist()
    result: dict[str, Any] = {
        "provenance": provenance("python scripts/record.py experts"),
        "remedies": {name: asdict(REMEDIES[name]) for name in REMEDIES},
        "runs": [],
    }
    pairs = [(name, seed) for name in REMEDIES for seed in SEEDS]
    for name, seed in tqdm(pairs):
        found = train(REMEDIES[name], seed, EPOCHS, data)
        busiest = [round(share, 4) for share in found.busiest]
        result["runs"].append(
            {
                "remedy": name,
                "seed": seed,
                "busiest": busiest,
                "accuracy": round(found.accuracy, 4),
            }
        )
    store("experts", result)
