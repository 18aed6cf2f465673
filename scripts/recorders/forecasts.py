"""Run scripts whose steps others have timed, and hold forecasts against them.

Usage: python scripts/record.py forecasts FOLDER [NAME ...]

FOLDER holds a checkout of each repository that ``public/forecasts.toml``
names, with its history. What is published, and how a script is run, stands
there. Those named are run, or all; the rows of the others stay as they are.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recorders.provenance import DATA, provenance, store
from recorders.public.forecasts import (
    Forecast,
    gib_of,
    longest,
    read_forecasts,
    seconds_of,
)
from recorders.public.made_for_forecasts import make_up_for_forecasts
from recorders.public.made_up import make_up
from recorders.public.run import Runner

RECORD = "forecasts_of_scripts"
DIGITS = 4


def main(folder: str, *names: str) -> None:
    """Run scripts; the record is written after each."""
    repositories = Path(folder).resolve()
    make_up(repositories)
    make_up_for_forecasts(repositories / "made")
    runner = Runner(repositories, repositories / "logs")
    path = DATA / f"{RECORD}.json"
    old = json.loads(path.read_text())["runs"] if path.exists() else []
    rows = {row["name"]: row for row in old}
    forecasts = read_forecasts()
    command = "make reproduce NAME=forecasts FOLDER=…"
    facts = provenance(command) | {"clock": "simulated"}
    for forecast in forecasts:
        name = forecast.script.name
        if names and name not in names:
            continue
        row = rows[name] = compared(forecast, runner)
        print(name, row["failed"] or f"{row['ratio']} times", flush=True)
        listed = [
            rows[f.script.name] for f in forecasts if f.script.name in rows
        ]
        store(RECORD, {"provenance": facts, "runs": listed})


def compared(forecast: Forecast, runner: Runner) -> dict[str, Any]:
    """Run a script, and return its forecast and what was published."""
    script, published = forecast.script, forecast.published
    run = runner.record(script)
    row = {
        **{k: run[k] for k in ("name", "repository", "commit", "script")},
        "changed": script.replaced,
        "ranks": script.ranks,
        "options": script.options,
        "arguments": script.arguments,
        "published": asdict(published),
        "published_seconds": rounded(published.step_seconds()),
        "reason": script.reason,
        "failed": run["failed"],
    }
    if run["step"] is None or run["failed"]:
        return row
    seconds = seconds_of(run["step"])
    peak = gib_of(run["peak"])
    report = runner.log(script).read_text()
    row |= {
        "forecast_seconds": rounded(seconds),
        "ratio": rounded(seconds / published.step_seconds()),
        "forecast_peak": rounded(peak),
        "peak_ratio": published.peak and rounded(peak / published.peak),
        "longest": longest(report),
    }
    return row


def rounded(number: float) -> float:
    """Return a number with ``DIGITS`` significant digits."""
    return float(f"{number:.{DIGITS}g}")
