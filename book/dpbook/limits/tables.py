"""Tables of the page ``limits`` that compare rows with each other."""

import json
from dataclasses import replace
from pathlib import Path

from dpbook.limits.comparisons import (
    Comparison,
    Comparisons,
    mean_factor,
    unseen,
    worst,
)
from dpkit.theory.tables import Table
from dpkit.theory.units import show_factor

# Series -> the classes of its speeds and of its speed-ups, and whose they are.
STAGES = "pipelines", "speed-ups of pipelines"
REPLICAS = "convolutions", "scaling"
P100 = "p100 DGX-1"
K80 = "k80 GCE"
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
    "replicas, P100, parameter servers": (
        REPLICAS,
        (f"inception3 {P100}", f"resnet50 {P100}", f"resnet152 {P100}"),
    ),
    "replicas, P100, by NCCL": (
        REPLICAS,
        (f"alexnet {P100}", f"vgg16 {P100}"),
    ),
    "replicas, V100 and A100, by NCCL": (
        REPLICAS,
        (
            "resnet50 v1.5 V100 FP32",
            "resnet50 v1.5 V100 mixed",
            "resnet50 v1.5 A100 TF32",
            "resnet50 v1.5 A100 mixed",
        ),
    ),
}


def speeds_table(found: Comparisons) -> Table:
    """Return how far off speeds are, and speed-ups of the same networks.

    The last column is the factor of the guess that k replicas are k times as
    fast as one.
    """
    columns = "factor of speeds:.2f | of speed-ups:.2f | of the guess:.2f"
    table = Table(f"series | {columns}")
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
        guess = mean_factor(perfect) if perfect else None
        table.add(name, mean_factor(speeds), mean_factor(ratios), guess)
    return table


# Effects that are not modelled -> rows that they make wrong.
STAYS_OUT = {
    "what replicas lose in a node": (
        ("alexnet", "p100 DGX-1", "8 GPUs, batch 512 each"),
        ("resnet50 v1.5", "A100 mixed", "8 GPUs, batch 256 each"),
    ),
    "gradients between nodes": (
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
    names = "what is absent | row | hardware | configuration | unit"
    table = Table(f"{names} | predicted:.3g | measured:.3g | factor:>")
    by_name = {
        (row.subject, row.hardware, row.configuration): row
        for row in found.rows
    }
    for effect, examples in STAYS_OUT.items():
        for example in examples:
            row = by_name[example]
            values = row.unit, row.predicted, row.measured
            table.add(effect, *example, *values, show_factor(row.factor))
    return table


def before_table(found: Comparisons, path: str | Path) -> Table:
    """Return how far off each subject was before the clock was changed.

    ``path`` is that of ``comparisons_before.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    before = {tuple(row[:4]): row[4] for row in record["rows"]}
    groups: dict[tuple[str, ...], list[tuple[Comparison, Comparison]]] = {}
    for row in found.rows:
        where = row.subject, row.hardware, row.configuration, row.unit
        if where in before:
            was = replace(row, predicted=before[where])
            group = row.subject, row.hardware, row.unit, row.kind
            groups.setdefault(group, []).append((was, row))
    head = "what | hardware | unit | kind | rows"
    table = Table(f"{head} | factor before:.2f | now:.2f")
    for names, pairs in groups.items():
        means = (mean_factor(side) for side in zip(*pairs))
        table.add(*names, len(pairs), *means)
    return table


LARGE = 2**22  # bytes, 4 MiB


def by_size_table(found: Comparisons) -> Table:
    """Return how far off rings by messages are, for small and large tensors.

    The RTX cards reach each other through the host alone.
    """
    table = Table("tensors | link | rows | mean factor:.2f | largest:>")
    messages = unseen(found.of("collectives by messages").rows)
    for size in ("below 4 MiB", "from 4 MiB on"):
        for link in ("direct", "through the host"):
            rows = [
                row
                for row in messages
                if ("RTX" in row.hardware) == (link != "direct")
                if (_num_bytes(row) < LARGE) == (size == "below 4 MiB")
            ]
            largest = show_factor(worst(rows).factor)
            table.add(size, link, len(rows), mean_factor(rows), largest)
    return table


def _num_bytes(row: Comparison) -> int:
    return int(row.configuration.split()[0].replace(",", ""))


# Networks whose gradients NCCL added up, but on K80s -> their parameters.
PARAMETERS = {
    "alexnet": 61.8e6,
    "vgg16": 138.4e6,
    "resnet50 v1.5": 25.6e6,
    "resnext101-32x4d": 44.2e6,
    "se-resnext101-32x4d": 45.3e6,
    "efficientnet-b0": 5.3e6,
    "efficientnet-b4": 19.3e6,
}
ONE_GPU = "convolutions", "grouped convolutions", "depthwise convolutions"


def lost_table(found: Comparisons) -> Table:
    """Return what eight GPUs of a node lose, beside what could explain it."""
    alone = {
        (row.subject, row.hardware): row.measured
        for row in found.of(*ONE_GPU).rows
        if row.configuration.startswith("1 GPU")
    }
    columns = "images/s of one:,.0f | gradients, MB:.0f | lost by 8:.0%"
    table = Table(f"network | GPUs | {columns}")
    for row in found.of("scaling").rows:
        by_nccl = row.subject in PARAMETERS and "k80" not in row.hardware
        if by_nccl and row.configuration.startswith("8 GPUs"):
            name = row.subject, row.hardware
            megabytes = 4e-6 * PARAMETERS[row.subject]
            table.add(*name, alone[name], megabytes, 1 - row.measured)
    return table
