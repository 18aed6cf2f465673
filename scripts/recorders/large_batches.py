"""Rerun the experiment on large batches and record it in book/_data.

The recipe is that of dpbook.large_batches.runs. A run is known by how many
times the batch of one device it takes (k), its learning rate, its warm-up and
its seed. It takes about a quarter of an hour on one CPU core.
"""

from collections.abc import Iterator
from dataclasses import asdict
from math import log2
from typing import Any

import torch

from dpbook.large_batches.runs import (
    NUM_EXAMPLES,
    RECIPE,
    WARMUPS,
    error_percent,
    final_error,
    network,
    steps,
)
from recorders.provenance import provenance, store

ETA = RECIPE.lr
KS = (1, 2, 4, 8, 16, 32, 64)
RATES = tuple(ETA * 2**i for i in range(-2, 7))
SEEDS = tuple(range(10))  # of runs by one of the four ways
GRID_SEEDS = SEEDS[:5]  # of the other rates
ELBOW = 16  # the k at which the curve turns upwards
ELBOW_SEEDS = range(64)  # ten do not tell the warm-ups apart there
TARGET = 20.0  # percent of error
TARGET_KS = (*KS, 128)


def runs() -> Iterator[tuple[int, float, str, tuple[int, ...]]]:
    """Yield k, the rate, the warm-up and the seeds of what is trained."""
    for k in KS:
        for lr in RATES:
            on_a_way = lr in (ETA, k * ETA)
            yield k, lr, "none", SEEDS if on_a_way else GRID_SEEDS
        for warmup in ("constant", "gradual"):
            yield k, k * ETA, warmup, SEEDS


def errors() -> list[dict[str, Any]]:
    """Return the final test errors of all runs."""
    found = []
    for k, lr, warmup, seeds in runs():
        values = [
            round(final_error(k, lr=lr, seed=s, warmup=warmup), 2)
            for s in seeds
        ]
        print(f"k {k}, rate {lr:g}, {warmup}: {values}", flush=True)
        found.append({"k": k, "lr": lr, "warmup": warmup, "errors": values})
    return found


def elbow() -> dict[str, list[float]]:
    """Return the final test errors of many seeds, by the warm-up."""
    found = {}
    for warmup in WARMUPS:
        found[warmup] = [
            round(final_error(ELBOW, lr=ELBOW * ETA, seed=s, warmup=warmup), 2)
            for s in ELBOW_SEEDS
        ]
        print(f"k {ELBOW}, {warmup}: {found[warmup]}", flush=True)
    return found


def steps_by_rate() -> list[dict[str, Any]]:
    """Return the steps to the target, at five rates for each batch.

    The middle one is that of the linear scaling rule up to k = 8, where the
    best rates stopped growing in a first try.
    """
    found = []
    for k in TARGET_KS:
        max_steps = max(10 * RECIPE.steps_per_epoch(k), 1000)
        middle = round(log2(min(k, 8)))
        for lr in (ETA * 2.0 ** (middle + i) for i in range(-2, 3)):
            taken = [steps_to(TARGET, k, lr, s, max_steps) for s in GRID_SEEDS]
            print(f"k {k}, rate {lr:g}, steps: {taken}", flush=True)
            found.append({"k": k, "lr": lr, "steps": taken})
    return found


def steps_to(
    target: float, k: int, lr: float, seed: int, max_steps: int
) -> int | None:
    """Train at one rate until the test error is low enough.

    The error is measured after each step, but not more often than once in
    1,024 images.

    Args:
        target: The test error to be reached, in percent.
        k: How many devices share a batch.
        lr: The learning rate.
        seed: Decides the first parameters and the shuffling.
        max_steps: After how many steps it gives up.

    Returns:
        The number of steps that it took. None: it gave up.
    """
    net = network(seed)
    every = max(1, 1024 // (k * RECIPE.batch_size))
    for step in steps(net, lambda step: lr, k, seed):
        if step % every == 0 and error_percent(net) <= target:
            return step
        if step == max_steps:
            break
    return None


def main() -> None:
    """Train; write what came out when all runs have ended."""
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "provenance": provenance("python scripts/record.py large_batches"),
        "recipe": {**asdict(RECIPE), "num_examples": NUM_EXAMPLES},
        "elbow": {"k": ELBOW, "errors": elbow()},
        "target_error": TARGET,
        "steps": steps_by_rate(),
        "runs": errors(),
    }
    store("large_batches", result)
