"""Record how many cells of each chapter work on GPUs, of 1, 2, 4 and 8.

Usage: python scripts/record.py cells_on_gpus [CHAPTER ...]

The GPUs are the double of CUDA. Each chapter runs on each number of them, as
in a rehearsal: what its cells print is compared with the stored outputs. If a
chapter fails on some number of GPUs, the record lacks this number, and the
program ends with the names of what failed. The page `gpus` shows the table.
All chapters take an hour on two cores. Those that are not named stay as they
are, and the provenance is that of the last run.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import rehearse
from rehearsal.parts import chapter
from tqdm import tqdm

from recorders.provenance import DATA, ROOT, load, provenance, store

NUM_GPUS = (1, 2, 4, 8)
# A row of tests/running/gpus_used.py: cells, cells on GPUs, GPUs, chapter.
ROW = re.compile(r"(?m)^ *(\d+) +(\d+) +\d+  ([\w-]+)$")


def main(*names: str) -> None:
    """Run chapters, all or those named; write the record."""
    known = [path.stem for path in sorted((ROOT / "book").glob("*.ipynb"))]
    if unknown := {*names} - {*known}:
        sys.exit(f"unknown chapters ({', '.join(sorted(unknown))})")
    recorded = (DATA / "cells_on_gpus.json").exists()
    chapters = load("cells_on_gpus")["chapters"] if recorded else {}
    outcomes = rehearsed(list(names) or known)
    failed = [outcome for outcome in outcomes if outcome.fault]
    chapters |= rows([outcome for outcome in outcomes if not outcome.fault])
    record = {
        "provenance": provenance("python scripts/record.py cells_on_gpus"),
        "what": "code cells of each chapter, and how many of them work on "
        "GPUs of the double of CUDA, by the number of GPUs",
        "chapters": {
            name: chapters[name] for name in known if name in chapters
        },
    }
    store("cells_on_gpus", record)
    if failed:
        sys.exit("\n".join(map(rehearse.told, failed)))


def rehearsed(names: list[str]) -> list[rehearse.Outcome]:
    """Run chapters on each number of GPUs; return how they ended."""
    rehearse.LOGS.mkdir(parents=True, exist_ok=True)
    parts = [chapter(name, k) for name in names for k in NUM_GPUS]
    with ThreadPoolExecutor(rehearse.AT_ONCE) as pool:
        running = pool.map(rehearse.run, parts)
        return list(tqdm(running, total=len(parts), disable=None))


def rows(outcomes: list[rehearse.Outcome]) -> dict[str, Any]:
    """Return what chapters that ran have printed of their cells."""
    found: dict[str, Any] = {}
    for outcome in outcomes:
        printed = rehearse.log_of(outcome.part).read_text("utf-8")
        ((cells, on_gpus, name),) = ROW.findall(printed)
        row = found.setdefault(name, {"cells": int(cells), "on_gpus": {}})
        row["on_gpus"][str(outcome.part.num_gpus)] = int(on_gpus)
    return found
