"""Run notebooks from the top and store normalised outputs.

Usage: python scripts/execute_notebooks.py [--live | --check] book/*.ipynb

Each notebook runs in a fresh kernel of this Python, in its own folder. What
differs between two runs without meaning (times, ids, how a stream was cut) is
removed, so that running twice leaves no difference. A file is written only if
its contents changed, and only after its last cell ran.

Cells tagged `nbval-ignore-output` keep what they have stored if their source
is unchanged and the fresh outputs differ in their numbers alone: see
chapters/live_cells.py. After a change of what they measure or draw, `--live`
(`make execute LIVE=1`) stores all that is fresh.

`--check` (`make execute CHECK=yes`) writes no file, and fails if one would
change: it names each cell that differs, and how.
"""

import argparse
import difflib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from chapters.live_cells import keep_live, mark_live
from chapters.normal_form import as_text, normalise
from chapters.run_cells import execute
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

LINES_SHOWN = 12


def run(path: Path, live: bool = False) -> NotebookNode:
    """Run the notebook at `path`; return what its file should hold.

    Live cells keep the outputs that the file has, unless `live` is true.
    """
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    execute(fresh, path.parent)
    normalise(stored)
    normalise(fresh)
    if not live:
        keep_live(fresh, stored)
    mark_live(fresh)
    return fresh


def differences(stored: NotebookNode, fresh: NotebookNode) -> Iterator[str]:
    """Yield, for each cell that differs, its id and the lines that do."""
    for before, now in zip(stored.cells, fresh.cells, strict=True):
        texts = (
            as_text(nbformat.v4.new_notebook(cells=[cell])).splitlines()
            for cell in (before, now)
        )
        lines = difflib.unified_diff(
            *texts, "stored", "fresh", n=0, lineterm=""
        )
        if shown := [f"    {line[:90]}" for line in lines][:LINES_SHOWN]:
            yield "\n".join([f"cell {now.id!r} is not as stored", *shown])


def renew(path: Path, live: bool, check_only: bool) -> bool:
    """Run a notebook, and compare or store it; return whether all is well."""
    start = time.perf_counter()
    try:
        fresh = run(path, live)
    except CellExecutionError as error:
        print(f"{path}: a cell failed\n{error}", file=sys.stderr)
        return False
    seconds = time.perf_counter() - start
    is_same = path.read_text(encoding="utf-8") == as_text(fresh)
    state = "the same" if is_same else "differs" if check_only else "changed"
    print(f"{path}: {state} ({seconds:.1f} s)", flush=True)
    if is_same:
        return True
    if check_only:
        found = list(differences(nbformat.read(path, as_version=4), fresh))
        for what in found or ["the cells agree, not how the file is written"]:
            print(f"{path}: {what}", file=sys.stderr, flush=True)
        return False
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(as_text(fresh), encoding="utf-8")
    temporary.replace(path)
    return True


def main() -> int:
    """Run the notebooks named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--live", action="store_true", help="store all outputs")
    way.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    done = [renew(p, options.live, options.check) for p in options.notebooks]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
