"""Which question each class of work may be asked.

A class of work may be asked "how much" if its unseen rows miss by a fifth at
most, on average. It may be asked "which" if at least four of five decisions
came out right. A test holds ``WORK`` to the record.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpkit.lab.limits.comparisons import (
    Comparisons,
    mean_miss,
    read,
    unseen,
    worst,
)
from dpkit.lab.limits.predictions import Prediction, compared
from dpkit.theory.tables import Table

MOST_MISS = 0.2  # of a class that may be asked how much
LEAST_RIGHT = 0.8  # of the decisions, of a class that may be asked which


class Questions(NamedTuple):
    """What a class of work may be asked, and in words."""

    how_much: bool
    which: bool
    words: str


WORK = {
    "products": Questions(
        False, False, "nothing: all rows were fitted, and none is a test"
    ),
    "copies": Questions(
        False,
        True,
        "who shares a path; not seconds, where cards have no peer access",
    ),
    "convolutions": Questions(
        True, True, "images per second of one GPU, and which GPU or network"
    ),
    "scaling": Questions(
        True,
        False,
        "how many times one GPU several are; not where 90 % of it ends",
    ),
    "pipelines": Questions(
        False, False, "no seconds; ask for their speed-ups instead"
    ),
    "speed-ups of pipelines": Questions(
        True, True, "how many times faster, and which cut"
    ),
    "transformers": Questions(
        True, True, "seconds of a layer and of a step, and what to recompute"
    ),
    "collectives in a server": Questions(
        True, True, "microseconds, and whether it pays to join messages"
    ),
    "collectives between servers": Questions(
        False, True, "whether it pays to join messages; not seconds"
    ),
    "collectives by messages": Questions(
        False, True, "whether it pays to join messages; not seconds"
    ),
    "small networks": Questions(
        False, False, "nothing: their time is mostly Python's"
    ),
}


def read_all(folder: str | Path) -> Comparisons:
    """Return what is compared in ``book/_data``, and on a calibrated CPU."""
    found = read(Path(folder) / "comparisons.json")
    record = json.loads((Path(folder) / "calibrated_cpu.json").read_text())
    facts = record["provenance"]
    steps = [Prediction(**row) for row in facts["check"]]
    on_cpu = compared(steps, f"CPU, {facts['device_name']}")
    return Comparisons(
        found.rows + on_cpu.rows, found.decisions + on_cpu.decisions
    )


def questions(found: Comparisons) -> tuple[bool, bool]:
    """Return whether a class of work may be asked how much, and which."""
    rows, decisions = unseen(found.rows), found.decisions
    right = sum(decision.right for decision in decisions)
    return (
        bool(rows) and mean_miss(rows) <= MOST_MISS,
        bool(decisions) and right >= LEAST_RIGHT * len(decisions),
    )


def summary(found: Comparisons) -> Table:
    """Return a line for each class of work: its misses, and its decisions."""
    values = "mean miss:.0% | largest:+.0%"
    table = Table(f"work | fitted | unseen | {values} | decisions")
    for work in WORK:
        rows, decisions = found.of(work)
        left = unseen(rows)
        mean, largest = (
            (mean_miss(left), worst(left).error) if left else (None, None)
        )
        right = sum(decision.right for decision in decisions)
        words = f"{right} of {len(decisions)} right" if decisions else ""
        counts = len(rows) - len(left), len(left)
        table.add(work, *counts, mean, largest, words)
    return table


def worst_table(found: Comparisons) -> Table:
    """Return the unseen row of each class of work that is off most."""
    table = Table("work | what | hardware | configuration | error:+.0%")
    for work in WORK:
        left = unseen(found.of(work).rows)
        if left:
            row = worst(left)
            what = row.subject, row.hardware, row.configuration
            table.add(work, *what, row.error)
    return table


def words_table() -> Table:
    """Return what each class of work may be asked."""
    table = Table("work | how much? | which? | so ask it for")
    for work, (how_much, which, words) in WORK.items():
        answers = ("yes" if yes else "no" for yes in (how_much, which))
        table.add(work, *answers, words)
    return table


# Series -> the classes of its speeds and of its speed-ups, and whose they are.
STAGES = "pipelines", "speed-ups of pipelines"
REPLICAS = "convolutions", "scaling"
P100, K80 = "p100 DGX-1", "k80 GCE"
SERIES = {
    "stages, P40": (STAGES, ("AmoebaNet-D in stages P40",)),
    "stages, not named": (STAGES, ("ResNet-50 in two halves not named; K80",)),
    "replicas, K80": (
        REPLICAS,
        (
            f"inception3 {K80}",
            f"resnet50 {K80}",
            f"resnet152 {K80}",
            f"alexnet {K80}",
            f"vgg16 {K80}",
        ),
    ),
    "replicas, P100, by servers": (
        REPLICAS,
        (f"inception3 {P100}", f"resnet50 {P100}", f"resnet152 {P100}"),
    ),
    "replicas, P100, by NCCL": (
        REPLICAS,
        (f"alexnet {P100}", f"vgg16 {P100}"),
    ),
    "replicas, V100 and A100, mixed": (
        REPLICAS,
        ("resnet50 v1.5 V100 mixed", "resnet50 v1.5 A100 mixed"),
    ),
}


def speeds_table(found: Comparisons) -> Table:
    """Return how far off speeds are, and speed-ups of the same networks.

    The last column is the miss of the guess that k replicas are k times as
    fast as one.
    """
    table = Table("series | speeds:.0% | speed-ups:.0% | guess of k times:.0%")
    for name, (works, networks) in SERIES.items():
        speeds, ratios = (
            [
                row
                for row in unseen(found.of(work).rows)
                if f"{row.subject} {row.hardware}" in networks
            ]
            for work in works
        )
        perfect = [
            replace(row, predicted=1.0)
            for row in ratios
            if row.unit == "of k times one"
        ]
        guess = mean_miss(perfect) if perfect else None
        table.add(name, mean_miss(speeds), mean_miss(ratios), guess)
    return table


# Effects that are not modelled -> rows that they make wrong.
STAYS_OUT = {
    "contention in a server": (
        ("alexnet", "p100 DGX-1", "8 GPUs, batch 512 each"),
        ("resnet50 v1.5", "A100 mixed", "8 GPUs, batch 256 each"),
    ),
    "contention between servers": (
        ("gradients of 8 replicas of 530B", "A100", "added to a step"),
    ),
    "parameter servers": (
        ("resnet50", "p100 DGX-1", "8 GPUs, batch 64 each"),
        ("vgg16", "k80 GCE", "8 GPUs, batch 32 each"),
    ),
    "tables by shape": (
        ("inception3", "p100 DGX-1", "1 GPU, batch 64"),
        ("alexnet", "p100 DGX-1", "1 GPU, batch 512"),
    ),
}


def stays_out(found: Comparisons) -> Table:
    """Return rows that show the size of what is not modelled."""
    names = "what is absent | row | hardware | configuration"
    table = Table(f"{names} | predicted:.3g | measured:.3g | error:+.0%")
    by_name = {
        (row.subject, row.hardware, row.configuration): row
        for row in found.rows
    }
    for effect, examples in STAYS_OUT.items():
        for example in examples:
            row = by_name[example]
            values = row.predicted, row.measured, row.error
            table.add(effect, *example, *values)
    return table


def before_table(found: Comparisons, path: str | Path) -> Table:
    """Return how far off each subject was before the clock was changed.

    ``path`` is that of ``comparisons_before.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    before = {tuple(row[:4]): row[4] for row in record["rows"]}
    pairs: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in found.rows:
        where = row.subject, row.hardware, row.configuration, row.unit
        if where in before:
            was = replace(row, predicted=before[where])
            group = pairs.setdefault((row.subject, row.hardware, row.unit), [])
            group.append((abs(was.error), abs(row.error)))
    table = Table("what | hardware | unit | rows | off before:.0% | now:.0%")
    for names, errors in pairs.items():
        means = (sum(column) / len(errors) for column in zip(*errors))
        table.add(*names, len(errors), *means)
    return table
