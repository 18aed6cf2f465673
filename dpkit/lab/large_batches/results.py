"""What book/_data/large_batches.json says, sorted by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

Record = Mapping[str, Any]
ByBatch = dict[int, list[float]]

# The name of a way -> its warm-up, and whether the rate grows with k.
WAYS = {
    "η": ("none", False),
    "k·η": ("none", True),
    "k·η, constant warm-up": ("constant", True),
    "k·η, gradual warm-up": ("gradual", True),
}


def errors_by_way(record: Record) -> dict[str, ByBatch]:
    """Return the test errors of the runs of each way.

    Args:
        record: What ``scripts/recorders/large_batches.py`` wrote.

    Returns:
        Way -> k -> percent of error, for each seed.
    """
    eta = record["recipe"]["lr"]
    found: dict[str, ByBatch] = {way: {} for way in WAYS}
    for run in record["runs"]:
        for way, (warmup, scaled) in WAYS.items():
            lr = run["k"] * eta if scaled else eta
            if (run["warmup"], run["lr"]) == (warmup, lr):
                found[way][run["k"]] = run["errors"]
    return found


def errors_by_rate(record: Record) -> dict[int, dict[float, float]]:
    """Return the mean test error of each rate, without warm-up.

    The mean is over the seeds that all rates have in common.

    Args:
        record: What ``scripts/recorders/large_batches.py`` wrote.

    Returns:
        k -> learning rate -> percent of error.
    """
    plain = [run for run in record["runs"] if run["warmup"] == "none"]
    common = min(len(run["errors"]) for run in plain)
    found: dict[int, dict[float, float]] = {}
    for run in plain:
        by_rate = found.setdefault(run["k"], {})
        by_rate[run["lr"]] = mean(run["errors"][:common])
    return found


def best_steps(record: Record) -> dict[int, tuple[float, float]]:
    """Return, for each k, the rate that needs the fewest steps, and those.

    A rate at which a seed did not reach the target is out.

    Args:
        record: What ``scripts/recorders/large_batches.py`` wrote.

    Returns:
        k -> (learning rate, mean number of steps to the target).
    """
    found: dict[int, tuple[float, float]] = {}
    for run in record["steps"]:
        if None in run["steps"]:
            continue
        steps = mean(run["steps"])
        if run["k"] not in found or steps < found[run["k"]][1]:
            found[run["k"]] = run["lr"], steps
    return found


def spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation of some runs, as text.

    Example:
        >>> spread([15.0, 16.0, 17.0])
        '16.0 ± 1.0'
    """
    return f"{mean(values):.1f} ± {stdev(values):.1f}"
