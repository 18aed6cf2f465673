"""Tables of the page."""

import json
from pathlib import Path

from dpbook.own_script.running import sections, terminal
from dpkit.theory.tables import Table, table


def machines_table(machines: list[str]) -> Table:
    """Return the step of the script on several machines.

    Args:
        machines: Options of ``torchrun`` that name the ranks and the machine.
    """
    found_rows = []
    for machine in machines:
        printed = terminal(f"python -m dpkit torchrun {machine} train.py")
        step = sections(printed, "A step").splitlines()[1]
        shares = sections(printed, "Where the time").splitlines()[2].split()
        found_rows.append(
            {
                "options": machine,
                "a step": step.strip().partition(" (")[0],
                "sending": shares[2],
                "of it hidden": shares[3],
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
