"""Run scripts that others wrote on simulated GPUs, and record what came of it.

Usage: python scripts/record.py public_scripts FOLDER [NAME ...]

FOLDER holds a checkout of each repository that ``public/scripts.toml`` names,
and gets data that are made up (``public/made_up.py``). Those named are run, or
all; the rows of the others stay as they are. A script has 200 seconds.
"""

import json
from pathlib import Path

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
    old = json.loads(path.read_text())["scripts"] if path.exists() else []
    rows = {row["name"]: row for row in old}
    scripts = read_table()
    for script in scripts:
        if names and script.name not in names:
            continue
        row = rows[script.name] = runner.record(script)
        told = row["failed"] or f"step {row['step']}, peak {row['peak']}"
        print(script.name, told, row.get("compared", ""), flush=True)
        listed = [rows[s.name] for s in scripts if s.name in rows]
        facts = provenance("make public-scripts") | {"clock": "simulated"}
        store(RECORD, {"provenance": facts, "scripts": listed})
