"""Record how many devices the cells of each chapter ask for.

Usage: python scripts/record.py devices_asked [CHAPTER ...]

Each chapter runs once, on simulated devices. `dpkit.devices` and the
functions that start processes write down what they are asked for: by a cell,
or by what a cell calls. The page *How to use this book* tells it.
It takes as long as the chapters that are named, or all. The rows of the others
stay as they are.
"""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from chapters.run_cells import execute

from recorders.provenance import DATA, ROOT, provenance, store

# Runs in the kernel, before the first cell. What is imported later takes the
# functions by their names from these modules.
PROBE = """
import json as _json, sys as _sys
import dpkit as _dpkit, dpkit.machine as _machine
import dpkit.processes.workers as _workers
import dpbook.common.torchrun as _torchrun

def _note(*row):
    with open({path!r}, "a") as file:
        print(_json.dumps(row), file=file)

_devices = _machine.devices
def _noted_devices(count=None, kind=None):
    _note("devices", count, kind)
    return _devices(count, kind)
for _module in list(_sys.modules.values()):
    if getattr(_module, "__dict__", {{}}).get("devices") is _devices:
        _module.devices = _noted_devices

_start = _workers.Workers.__init__
def _noted_start(self, world_size, *args, **options):
    given = dict(zip(("backend",), args), **options)
    _note("processes", world_size, given.get("backend"))
    _start(self, world_size, *args, **options)
_workers.Workers.__init__ = _noted_start

_run = _torchrun.torchrun
def _noted_run(num_processes, *words, **options):
    _name = " ".join(words[:2]) if words[0] == "-m" else words[0]
    _note("torchrun", num_processes, str(_name).split("/")[-1])
    return _run(num_processes, *words, **options)
_torchrun.torchrun = _noted_run
"""


def asked(chapter: Path) -> list[list[Any]]:
    """Run a chapter; return what was asked for: how, how many, which."""
    notebook = nbformat.read(chapter, as_version=4)
    with TemporaryDirectory() as folder:
        path = Path(folder, "asked.jsonl")
        probe = nbformat.v4.new_code_cell(PROBE.format(path=str(path)))
        notebook.cells.insert(0, probe)
        execute(notebook, chapter.parent)
        lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [list(row) for row in dict.fromkeys(map(tuple, rows))]


def main(*names: str) -> None:
    """Run chapters, all or those named; write the record."""
    os.environ.pop("DPKIT_DEVICES", None)
    made_by = provenance("python scripts/record.py devices_asked")
    chapters = {}
    if names:
        chapters = json.loads((DATA / "devices_asked.json").read_text())
        chapters = chapters["chapters"]
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        if not names or path.stem in names:
            chapters[path.stem] = asked(path)
            told = chapters[path.stem]
            print(path.stem, told, file=sys.stderr, flush=True)
    what = "how many devices, or processes, the cells of each chapter ask for"
    record = {
        "provenance": made_by,
        "what": what,
        "chapters": dict(sorted(chapters.items())),
    }
    store("devices_asked", record)
