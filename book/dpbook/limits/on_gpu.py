"""Training steps timed on a GPU, and scripts' steps that others timed.

Both were simulated, and are rows like all others. The steps on a GPU are those
of the record ``gpu_steps``, by the preset of that GPU.
"""

from collections.abc import Mapping
from typing import Any

from dpbook.limits.comparisons import Comparison

HOPPER = "convolutions from Hopper on"  # classes of work
SMALL = "small transformers"
EAGER = "eager scripts"
COMPILED = "compiled scripts"
PRESET = "h200"


def timed_steps(
    measured: Mapping[str, Any], simulated: Mapping[str, Any]
) -> list[Comparison]:
    """Return steps of whole models on a GPU as comparisons.

    Args:
        measured: What ``gpu_steps.json`` holds.
        simulated: What ``gpu_forecasts.json`` holds.
    """
    forecasts = [r for r in simulated["steps"] if r["preset"] == PRESET]
    (gpu,) = measured["provenance"]["gpus"]
    return [
        Comparison(
            subject=row["model"],
            hardware=f"{gpu} {'bfloat16' if row['bfloat16'] else 'float32'}",
            configuration=f"a step, batch {row['batch']}",
            unit="s",
            predicted=forecast["seconds"],
            measured=row["seconds"],
            kind="unseen",
            work=HOPPER if "ResNet" in row["model"] else SMALL,
        )
        for row, forecast in zip(measured["steps"], forecasts, strict=True)
    ]


def steps_of_scripts(record: Mapping[str, Any]) -> list[Comparison]:
    """Return forecasts of scripts as comparisons.

    Args:
        record: What ``forecasts_of_scripts.json`` holds.
    """
    return [
        Comparison(
            subject=run["repository"],
            hardware=run["published"]["hardware"].partition(",")[0],
            configuration=f"a step of {run['name']}",
            unit="s",
            predicted=run["forecast_seconds"],
            measured=run["published_seconds"],
            kind="unseen",
            work=COMPILED if run["published"]["compiled"] else EAGER,
        )
        for run in record["runs"]
    ]
