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
from dpkit.tables import Table, table
from dpkit.units import show_factor

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
    found_rows = []
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
        row = {
            "series": name,
            "factor of speeds": f"{mean_factor(speeds):.2f}",
            "of speed-ups": f"{mean_factor(ratios):.2f}",
        }
        if perfect:
            row["of the guess"] = f"{mean_factor(perfect):.2f}"
        found_rows.append(row)
    return table(found_rows)


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
    by_name = {
        (row.subject, row.hardware, row.configuration): row
        for row in found.rows
    }
    return table(
        [
            {
                "what is absent": effect,
                "row": row.subject,
                "hardware": row.hardware,
                "configuration": row.configuration,
                "unit": row.unit,
                "predicted": row.predicted,
                "measured": row.measured,
                "factor": show_factor(row.factor),
            }
            for effect, examples in STAYS_OUT.items()
            for row in map(by_name.__getitem__, examples)
        ]
    )


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
    found_rows = []
    for (subject, hardware, unit, kind), pairs in groups.items():
        factor_was, factor_is = (mean_factor(side) for side in zip(*pairs))
        found_rows.append(
            {
                "what": subject,
                "hardware": hardware,
                "unit": unit,
                "kind": kind,
                "rows": len(pairs),
                "factor before": f"{factor_was:.2f}",
                "now": f"{factor_is:.2f}",
            }
        )
    return table(found_rows)


def scripts_table(path: str | Path, only_eager: bool = False) -> Table:
    """Return forecasts of scripts' steps, and the steps that were timed.

    Args:
        path: That of ``forecasts_of_scripts.json``.
        only_eager: Leave out what was compiled when it was timed.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    found_rows = []
    for run in record["runs"]:
        published = run["published"]
        if only_eager and published["compiled"]:
            continue
        found_rows.append(
            {
                "run": run["name"],
                "measured on": published["hardware"].partition(",")[0],
                "attention": published["attention"],
                "was": "compiled" if published["compiled"] else "eager",
                "forecast, ms": round(1e3 * run["forecast_seconds"]),
                "measured, ms": round(1e3 * run["published_seconds"]),
                "factor": show_factor(run["ratio"]),
            }
        )
    return table(found_rows)


LARGE = 2**22  # bytes, 4 MiB


def by_size_table(found: Comparisons) -> Table:
    """Return how far off rings by messages are, for small and large tensors.

    The RTX cards reach each other through the host alone.
    """
    found_rows = []
    messages = unseen(found.of("collectives by messages").rows)
    for size in ("below 4 MiB", "from 4 MiB on"):
        for link in ("direct", "through the host"):
            rows = [
                row
                for row in messages
                if ("RTX" in row.hardware) == (link != "direct")
                if (_num_bytes(row) < LARGE) == (size == "below 4 MiB")
            ]
            found_rows.append(
                {
                    "tensors": size,
                    "link": link,
                    "rows": len(rows),
                    "mean factor": f"{mean_factor(rows):.2f}",
                    "largest": show_factor(worst(rows).factor),
                }
            )
    return table(found_rows)


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
    """Return what eight GPUs of a node lose, and what could explain it."""
    alone = {
        (row.subject, row.hardware): row.measured
        for row in found.of(*ONE_GPU).rows
        if row.configuration.startswith("1 GPU")
    }
    found_rows = []
    for row in found.of("scaling").rows:
        by_nccl = row.subject in PARAMETERS and "k80" not in row.hardware
        if by_nccl and row.configuration.startswith("8 GPUs"):
            speed = alone[row.subject, row.hardware]
            megabytes = 4e-6 * PARAMETERS[row.subject]
            found_rows.append(
                {
                    "network": row.subject,
                    "GPUs": row.hardware,
                    "images/s of one": f"{speed:,.0f}",
                    "gradients, MB": f"{megabytes:.0f}",
                    "lost by 8": f"{1 - row.measured:.0%}",
                }
            )
    return table(found_rows)
