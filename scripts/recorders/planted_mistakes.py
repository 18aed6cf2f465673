"""Plant mistakes into scripts that others wrote, and record what is said.

Usage: python scripts/record.py planted_mistakes FOLDER [NAME ...]

FOLDER is that of ``public_scripts``. A mistake is an edit of a copy, which is
run by ``dpkit torchrun`` and by ``dpkit check``; public/mistakes.toml has all.
Named are scripts, or a script and a mistake, such as nanogpt.sizes. The rows
of others stay as they are.
"""

import json
from pathlib import Path

from recorders.provenance import DATA, provenance, store
from recorders.public.made_up import make_up
from recorders.public.planting import (
    TOOLS,
    Planter,
    judged,
    name_of,
    read_mistakes,
)
from recorders.public.table import read_table

RECORD = "planted_mistakes"


def main(folder: str, *names: str) -> None:
    """Plant mistakes; the record is written after each."""
    repositories = Path(folder).resolve()
    make_up(repositories)
    table = read_mistakes()
    planter = Planter(repositories, table, read_table())
    path = DATA / f"{RECORD}.json"
    old = json.loads(path.read_text())["planted"] if path.exists() else []
    rows = {row["name"]: row for row in old}
    facts = provenance("make reproduce NAME=planted_mistakes")
    for plant in table.plant:
        name = name_of(plant)
        if names and plant.script not in names and name not in names:
            continue
        row = rows[name] = planter.record(plant)
        lines = [line for tool in TOOLS for line in row[tool]]
        print(name, *lines, sep="\n  ", flush=True)
        planted = [
            judged(rows[name_of(p)], p, table.mistake[p.mistake]["cause"])
            for p in table.plant
            if name_of(p) in rows
        ]
        record = {
            "provenance": facts,
            "commits": planter.commits(),
            "planted": planted,
        }
        store(RECORD, record)
