"""What book/_data/large_batches.json says, and the law of its steps.

A record is what ``scripts/recorders/large_batches.py`` wrote to that file.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from dpkit.least_squares import fit_two

Record = Mapping[str, Any]
ByBatch = dict[int, list[float]]

# The name of a way -> its warm-up, and whether the rate grows with k.
RULES = {
    "η": ("none", False),
    "k·η": ("none", True),
    "k·η, constant warm-up": ("constant", True),
    "k·η, gradual warm-up": ("gradual", True),
}


def errors_by_way(record: Record) -> dict[str, ByBatch]:
    """Return the errors of runs: way -> k -> percent, for each seed."""
    eta = record["recipe"]["lr"]
    found: dict[str, ByBatch] = {way: {} for way in RULES}
    for run in record["runs"]:
        for way, (warmup, scaled) in RULES.items():
            lr = run["k"] * eta if scaled else eta
            if (run["warmup"], run["lr"]) == (warmup, lr):
                found[way][run["k"]] = run["errors"]
    return found


def errors_by_rate(record: Record) -> dict[int, dict[float, float]]:
    """Return mean test errors without warm-up: k -> rate -> percent.

    The mean is over the seeds that all rates have in common.
    """
    plain = [run for run in record["runs"] if run["warmup"] == "none"]
    common = min(len(run["errors"]) for run in plain)
    found: dict[int, dict[float, float]] = {}
    for run in plain:
        by_rate = found.setdefault(run["k"], {})
        by_rate[run["lr"]] = mean(run["errors"][:common])
    return found


def best_steps(record: Record) -> dict[int, tuple[float, float]]:
    """Return, for each k, the best rate and its mean steps to the target.

    A rate at which a seed did not reach the target is out.
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
    """Return the mean and the standard deviation of some runs, as text."""
    return f"{mean(values):.1f} ± {stdev(values):.1f}"


def steps_needed(
    batch: float, least_steps: float, critical_batch: float
) -> float:
    """Return the steps to a target that a batch of this size takes.

    Twice a small batch halves the steps; twice a large one changes nothing.

    Source:
        S. McCandlish, J. Kaplan, D. Amodei, the OpenAI Dota team, An
        empirical model of large-batch training, 2018, arXiv:1812.06162.
    """
    return least_steps * (1 + critical_batch / batch)


def fit(batches: Sequence[int], steps: Sequence[float]) -> tuple[float, float]:
    """Return the least steps and the critical batch that fit best.

    The squares of the *relative* errors are least: a run of 100 steps counts
    as much as one of 10,000. With u = 1 / steps and v = 1 / (batch * steps)
    the law asks for ``least * u + a * v = 1``, where ``a = least * critical``.

    Raises:
        ValueError: If all batches have the same size.
    """
    if len(set(batches)) < 2:
        raise ValueError(
            f"one size of batch cannot tell two numbers (batches: {batches})"
        )
    us = [1 / s for s in steps]
    vs = [1 / (b * s) for b, s in zip(batches, steps, strict=True)]
    least, a = fit_two(us, vs, totals=[1.0] * len(us))
    return least, a / least
