"""Tables of the page."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from dpbook.own_script.running import sections, terminal
from dpkit.tables import Table, table
from dpkit.units import show_bytes

# The scripts into which mistakes were planted, by their names in the record.
PLANTED = {
    "nanogpt": "nanoGPT",
    "examples-mingpt": "minGPT",
    "llm.c": "llm.c",
    "examples-ddp-series": "tutorial",
}
_RIGHT = "the script is right"


def machines_table(machines: list[str]) -> Table:
    """Return the step of the script on several machines.

    Args:
        machines: Options of ``torchrun`` that name the ranks and the machine.
    """
    found_rows = []
    for machine in machines:
        printed = terminal(f"python -m dpkit torchrun {machine} train.py")
        step, *without = sections(printed, "A step").splitlines()[1:]
        shares = sections(printed, "Where the time").splitlines()[2]
        _, _, sending, hidden, *_ = shares.split()
        found_rows.append(
            {
                "options": machine,
                "a step": step.strip().partition(" (")[0],
                "without launches": " ".join(without[0].split()[1:3]),
                "sending": sending,
                "of it hidden": hidden,
            }
        )
    return table(found_rows)


def public_table(path: str | Path) -> Table:
    """Return which scripts of others have run, and how.

    ``path`` is that of ``public_scripts.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    return table(
        [
            {
                "script": f"{row['repository']}: {row['script']}",
                "ranks": row["ranks"],
                "ran": "yes" if row["ran"] else "no",
                "as gloo": _agreement(row.get("compared")),
                "alarm": _alarm(row.get("check")),
                "CPU time": _share_of_gloo(row),
            }
            for row in record["scripts"]
        ]
    )


def _agreement(compared: dict[str, float] | None) -> str:
    """Return how far parameters are from those of real processes."""
    if not compared:
        return "-"
    difference = compared["difference"]
    return "equal" if difference == 0 else f"{difference:.0e} off"


def _alarm(check: dict[str, Any] | None) -> str:
    """Return whether ``check`` has raised an alarm."""
    if check is None:
        return "-"
    return "yes" if check["said"] else "no"


def _share_of_gloo(row: dict[str, Any]) -> str:
    """Return the CPU time of a run, as a share of that of real processes."""
    compared = row.get("compared")
    if not compared:
        return "-"
    share: float = row["cpu_seconds"] / compared["cpu_seconds"]
    return f"{share:.0%}"


def _planted(path: str | Path) -> list[dict[str, Any]]:
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = record["planted"]
    return found


def mistakes_table(path: str | Path) -> Table:
    """Return by what mistakes in scripts of others were found.

    ``path`` is that of ``planted_mistakes.json``.
    """
    ends: dict[str, dict[str, str]] = {}
    for row in _planted(path):
        if row["mistake"] != _RIGHT:
            of_mistake = ends.setdefault(row["mistake"], {})
            of_mistake[row["script"]] = _shortened(row["end"])
    return table(
        [
            {
                "mistake": mistake,
                **{PLANTED[s]: found.get(s, "-") for s in PLANTED},
            }
            for mistake, found in ends.items()
        ]
    )


def _shortened(end: str) -> str:
    """Return how a planted mistake ended, in a word for a table."""
    if end.startswith("found"):
        both = "torchrun and check"
        return "both" if end.endswith(both) else end.split()[-1]
    return end.split()[0]  # shown without its cause, or missed


def planted_counts(path: str | Path) -> str:
    """Return how many planted mistakes ended in which way, as lines.

    And how many of the right scripts raised an alarm.
    """
    ends = [row for row in _planted(path) if row["mistake"] != _RIGHT]
    counts = Counter(row["end"].split()[0] for row in ends)
    parts = [f"{counts[word]} {word}" for word in ("found", "shown", "missed")]
    right = [row for row in _planted(path) if row["mistake"] == _RIGHT]
    alarms = sum(row["end"] == "an alarm" for row in right)
    return (
        f"{len(ends)} mistakes: {', '.join(parts)}\n"
        f"{len(right)} right scripts: {alarms} raised an alarm"
    )


def what_was_said(path: str | Path, name: str) -> str:
    """Return what the commands say of a script in the record.

    Args:
        path: That of ``planted_mistakes.json``.
        name: A script and a mistake, such as ``nanogpt.synchronized``.
    """
    (row,) = [row for row in _planted(path) if row["name"] == name]
    said = row["torchrun"] + row["check"]
    return "\n".join([f"{name}: {row['mistake']}", *(said or ["no alarm"])])


def memory_beside_tracker(path: str | Path) -> Table:
    """Return the peak of a large model, as counted here and by PyTorch.

    ``path`` is that of ``llama_memory.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    return table(
        [
            {
                "counted by": name,
                "peak of a GPU in step 2": show_bytes(record[key][1]),
            }
            for name, key in (
                ("python -m dpkit torchrun", "simulated"),
                ("PyTorch's FSDPMemTracker", "tracked"),
            )
        ]
    )


def public_counts(path: str | Path) -> str:
    """Return how many scripts of others have run, as lines."""
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = record["scripts"]
    compared = [row["compared"] for row in rows if row.get("compared")]
    equal = [found for found in compared if found["difference"] == 0]
    checked = [row["check"] for row in rows if row.get("check")]
    alarms = [check for check in checked if check["said"]]
    return (
        f"{sum(row['ran'] for row in rows)} of {len(rows)} ran\n"
        f"{len(equal)} of {len(compared)} that were compared are equal\n"
        f"{len(alarms)} of {len(checked)} that were checked raised an alarm"
    )


def eager_error(path: str | Path) -> str:
    """Return how far forecasts of eager runs are off, as a line.

    ``path`` is that of ``forecasts_of_scripts.json``.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    ratios = [
        run["ratio"]
        for run in record["runs"]
        if not run["published"]["compiled"]
    ]
    too_short = sum(ratio < 1 for ratio in ratios)
    mean = math.exp(-sum(map(math.log, ratios)) / len(ratios))
    return (
        f"{too_short} of {len(ratios)} too short, by a mean factor of "
        f"{mean:.2f}, at most {1 / min(ratios):.1f}"
    )
