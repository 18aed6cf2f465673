"""Run scripts that others wrote on simulated GPUs, and record what came of it.

Usage: python scripts/record.py public_scripts FOLDER [NAME ...]

FOLDER holds a checkout of each repository that ``public/scripts.toml`` names,
and gets data that are made up (``public/made_up.py``). Those named are run, or
all; the rows of the others stay as they are. Each row has the commit of the
project that ran the script. A script has half an hour.
"""

import json
from pathlib import Path
from typing import Any

from recorders.provenance import DATA, provenance, store
from recorders.public.made_up import make_up
from recorders.public.run import Runner
from recorders.public.table import read_table

RECORD = "public_scripts"


def main(folder: str, *names: str) -> None:
    """Run scripts; the record is written after each."""
    repositories = Path(folder).resolve()
    make_up(repositories)
    runner = Runner(repositories, repositories / "logs")
    path = DATA / f"{RECORD}.json"
    rows = {}
    if path.exists():
        old = json.loads(path.read_text())
        ran_by = _version(old["provenance"])
        rows = {r["name"]: {"ran_by": ran_by} | r for r in old["scripts"]}
    scripts = read_table()
    # Before the record changes, which is no change of what is run.
    command = "make reproduce NAME=public_scripts"
    facts = provenance(command) | {"clock": "simulated"}
    for script in scripts:
        if names and script.name not in names:
            continue
        row = runner.record(script) | {"ran_by": _version(facts)}
        rows[script.name] = row
        outcome = row["failed"] or f"step {row['step']}, peak {row['peak']}"
        print(script.name, outcome, row.get("compared", ""), flush=True)
        listed = [rows[s.name] for s in scripts if s.name in rows]
        store(RECORD, {"provenance": facts, "scripts": listed})


def _version(facts: dict[str, Any]) -> str:
    """Return the commit of a run, and whether there were changes to it."""
    changed = " with changes" if facts["uncommitted_changes"] else ""
    return f"{facts['commit'][:12]}{changed}"
