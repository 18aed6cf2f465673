"""Simulate the training steps that have been timed on a GPU.

Usage: python scripts/record.py gpu_forecasts

The records `gpu_steps` and `gpu_operators` are of a GPU; this program needs
none. It simulates each step twice: with the preset of the book, which comes
from documents, and with what `dpkit calibrate` has measured on that GPU. For
one step it also writes what each operator takes. It takes a minute.
"""

from collections import Counter
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

import dpkit
from dpbook.limits.gpu_steps import CASES, WARM_UP, Case, machine_of, train
from recorders.provenance import provenance, store

PRESETS = ("h200", "calibrated")
TRACED = CASES[2]
# The operators that are recorded take so many seconds of a step at least.
LEAST_SECONDS = 1e-4


def main() -> None:
    """Simulate the steps; write what they take."""
    rows = [
        forecast(case, preset)
        for preset in PRESETS
        for case in tqdm(CASES, preset)
    ]
    found = {"steps": rows, "operators": operators(TRACED)}
    facts = provenance("python scripts/record.py gpu_forecasts")
    store("gpu_forecasts", {"provenance": facts} | found)


def forecast(case: Case, preset: str) -> dict[str, Any]:
    """Return what a step takes on a simulated machine."""
    with machine_of(preset):
        (device,) = dpkit.devices(1, kind="sim")
        step = train(case, device, num_steps=1)
    return {
        "preset": preset,
        "model": case.name,
        "batch": case.batch_size,
        "bfloat16": case.bfloat16,
    } | asdict(step)


def operators(case: Case) -> list[dict[str, Any]]:
    """Return what operators take of a step on the preset of the book."""
    with machine_of(PRESETS[0]), dpkit.sim.trace() as timeline:
        (device,) = dpkit.devices(1, kind="sim")
        train(case, device, num_steps=1)
    seconds: Counter[str] = Counter()
    for span in timeline.spans:
        if span.kind == "compute":
            seconds[span.name] += (span.end - span.start) / (WARM_UP + 1)
    return [
        {"operator": name, "seconds": total}
        for name, total in seconds.most_common()
        if total > LEAST_SECONDS
    ]
