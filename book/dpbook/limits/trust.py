"""Which question each class of work may be asked.

A class of work may be asked "how much" if its unseen rows are off by a factor
of 1.2 at most, in their geometric mean. It may be asked "which" if it has
five decisions or more, and four of five came out right. A test holds ``WORK``
to the record.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from dpbook.limits.comparisons import (
    Comparisons,
    mean_factor,
    read,
    unseen,
    worst,
)
from dpbook.limits.on_cpu import compared
from dpbook.limits.on_gpu import (
    COMPILED,
    EAGER,
    HOPPER,
    steps_of_scripts,
    timed_steps,
)
from dpkit.calibration import Prediction
from dpkit.tables import Table, table
from dpkit.units import show_factor

MOST_FACTOR = 1.2  # of a class that may be asked how much
LEAST_DECISIONS = 5  # of a class that may be asked which
LEAST_RIGHT = 0.8  # of these


class Questions(NamedTuple):
    """What a class of work may be asked, and in words."""

    how_much: bool
    which: bool
    ask: str
    limit: str  # what not to ask, or why not


JOINING = "whether it pays to join messages"
BY_ZERO = {
    "H100": "plans by ZeRO-3 on H100s",
    "A100": "plans by ZeRO-3 on A100s",
}
PLANS = ("plans", *BY_ZERO.values())
WITH_EXPERTS = "plans with experts"
WORK = {
    "products": Questions(
        how_much=False,
        which=False,
        ask="",
        limit="all rows were fitted: no test",
    ),
    "copies": Questions(
        how_much=False,
        which=False,
        ask="",
        limit="nodes differ in copies to and through the host",
    ),
    "convolutions": Questions(
        how_much=True,
        which=True,
        ask="images/s of one GPU, and which GPU or network",
        limit="",
    ),
    HOPPER: Questions(
        how_much=False,
        which=False,
        ask="",
        limit="all are too short here: batch norm in 16 bits is five times "
        "slower than its traffic",
    ),
    "grouped convolutions": Questions(
        how_much=True,
        which=True,
        ask="images/s of one GPU, and which GPU or network",
        limit=(
            "groups of several channels; not a V100 in mixed precision "
            "against an A100 in TF32"
        ),
    ),
    "depthwise convolutions": Questions(
        how_much=False,
        which=True,
        ask="which GPU or network",
        limit=(
            "no images/s: such kernels have no separate rate, and are "
            "too fast here"
        ),
    ),
    "scaling": Questions(
        how_much=True,
        which=False,
        ask="the speed-up of several GPUs, over PCI Express",
        limit=(
            "an upper bound by NCCL over NVLink; not up to how many GPUs the "
            "efficiency is 90 %"
        ),
    ),
    "pipelines": Questions(
        how_much=False, which=False, ask="their speed-ups", limit="no seconds"
    ),
    "speed-ups of pipelines": Questions(
        how_much=True,
        which=True,
        ask="how many times faster, and which cut",
        limit="",
    ),
    "transformers": Questions(
        how_much=True,
        which=True,
        ask="seconds of a layer or step, and what to recompute",
        limit="",
    ),
    "attention": Questions(
        how_much=True,
        which=False,
        ask="the rate of a fused kernel, with heads of 128",
        limit="heads of 64 are slower than here, by up to 1.5 times",
    ),
    "small transformers": Questions(
        how_much=False,
        which=True,
        ask="which GPU, and which precision",
        limit="no seconds: all are too short here",
    ),
    "one layer": Questions(
        how_much=False,
        which=False,
        ask="",
        limit="small batches wait for Python, which takes no time here",
    ),
    "plans": Questions(
        how_much=True,
        which=True,
        ask="seconds of a step, what to recompute, and which grid",
        limit="not which of two similar layouts, nor what replicas add",
    ),
    BY_ZERO["H100"]: Questions(
        how_much=True,
        which=False,
        ask="seconds of a step, on up to 64 GPUs",
        limit="no close choice",
    ),
    BY_ZERO["A100"]: Questions(
        how_much=True,
        which=True,
        ask="seconds of a step, and whether a grid is faster",
        limit="no close choice; the program's messages have to be given, and "
        "their cost was found after six of these rows were seen",
    ),
    WITH_EXPERTS: Questions(
        how_much=False,
        which=True,
        ask="which way to divide experts",
        limit="no seconds: too short by ZeRO-3, and for narrow experts",
    ),
    "collectives in a node": Questions(
        how_much=True, which=True, ask=f"microseconds, and {JOINING}", limit=""
    ),
    "collectives between nodes": Questions(
        how_much=False, which=True, ask=JOINING, limit="no seconds"
    ),
    "collectives by messages": Questions(
        how_much=False, which=True, ask=JOINING, limit="no seconds"
    ),
    "small networks": Questions(
        how_much=False,
        which=False,
        ask="",
        limit="Python's work and first calls take no time here",
    ),
    EAGER: Questions(
        how_much=False,
        which=False,
        ask="",
        limit="too short here, by up to 2.3 times: a lower bound",
    ),
    COMPILED: Questions(
        how_much=False,
        which=False,
        ask="",
        limit="run eagerly here: up to 1.9 times too long, or 2.0 too short",
    ),
    "networks on a CPU": Questions(
        how_much=False,
        which=True,
        ask="which batch gives the most examples a second",
        limit="no seconds: one rate for all sizes of an operation",
    ),
}


def read_all(folder: str | Path) -> Comparisons:
    """Return what is compared in ``book/_data``.

    Steps of a CPU, of a GPU and of scripts stand in other records.
    """
    found = read(Path(folder) / "comparisons.json")

    def load(name: str) -> Any:
        return json.loads((Path(folder) / f"{name}.json").read_text())

    facts = load("calibrated_cpu")["provenance"]
    steps = [Prediction(**row) for row in facts["check"]]
    on_cpu = compared(steps, f"CPU, {facts['device_name']}")
    rows = [
        *found.rows,
        *on_cpu.rows,
        *timed_steps(load("gpu_steps"), load("gpu_forecasts")),
        *steps_of_scripts(load("forecasts_of_scripts")),
    ]
    return Comparisons(rows, found.decisions + on_cpu.decisions)


def questions(found: Comparisons) -> tuple[bool, bool]:
    """Return whether a class of work may be asked how much, and which."""
    rows = unseen(found.rows)
    decisions = found.decisions
    right = sum(decision.right for decision in decisions)
    return (
        bool(rows) and mean_factor(rows) <= MOST_FACTOR,
        len(decisions) >= LEAST_DECISIONS
        and right >= LEAST_RIGHT * len(decisions),
    )


def summary(found: Comparisons) -> Table:
    """Return a line for each class of work: its misses, and its decisions."""
    lines: list[dict[str, object]] = []
    for work in WORK:
        rows, decisions = found.of(work)
        left = unseen(rows)
        right = sum(decision.right for decision in decisions)
        lines.append(
            {
                "work": work,
                "fitted": len(rows) - len(left),
                "unseen": len(left),
                "mean factor": f"{mean_factor(left):.2f}" if left else "",
                "largest": show_factor(worst(left).factor) if left else "",
                "decisions right": (
                    f"{right} of {len(decisions)}" if decisions else ""
                ),
            }
        )
    return table(lines)


def worst_table(found: Comparisons) -> Table:
    """Return the unseen row of each class of work that is off most."""
    lines = []
    for work in WORK:
        left = unseen(found.of(work).rows)
        if left:
            row = worst(left)
            lines.append(
                {
                    "work": work,
                    "what": row.subject,
                    "hardware": row.hardware,
                    "configuration": row.configuration,
                    "factor": show_factor(row.factor),
                }
            )
    return table(lines)


def words_table() -> Table:
    """Return what each class of work may be asked."""
    return table(
        [
            {
                "work": work,
                "how much?": "yes" if how_much else "no",
                "which?": "yes" if which else "no",
                "ask for": ask_for,
                "limit": limit,
            }
            for work, (how_much, which, ask_for, limit) in WORK.items()
        ]
    )
