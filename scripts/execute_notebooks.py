"""Run notebooks from the top and store normalised outputs.

Usage: python scripts/execute_notebooks.py [--live | --check] book/*.ipynb

Each notebook runs in a fresh kernel of this Python, in its own folder. What
differs between two runs without meaning (times, ids, how a stream was cut) is
removed, so that running twice leaves no difference. A file is written only if
its contents changed, and only after its last cell ran.

Cells tagged `nbval-ignore-output` are run like the others, but what they have
stored stays if the fresh outputs say the same but for their numbers, and the
cell's source is unchanged: see live_cells.py. After a change of what they
measure or draw, `--live` (`make execute LIVE=1`) stores all that is fresh.

`--check` (`make reproducible`) writes no file, and fails if one would change:
it names each cell that differs, and how.
"""

import argparse
import difflib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from live_cells import keep_live, mark_live
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager
from normal_form import as_text, normalise
from traitlets import default

SECONDS_PER_CELL = 600
LINES_SHOWN = 12


def kernel_environment() -> dict[str, str]:
    """Return the environment of a kernel: no progress bars, inline plots."""
    environment = os.environ | {"TQDM_DISABLE": "1"}
    environment.pop("MPLBACKEND", None)  # the kernel's own choice is inline
    return environment


class ThisPython(AsyncKernelManager):
    """Start the kernel that nbval compares with: that of this Python."""

    @default("kernel_spec_manager")
    def _use_this_python(self) -> NbvalKernelspecManager:
        return NbvalKernelspecManager(parent=self)


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run every cell of `notebook` in place, with `folder` as its folder.

    Raises:
        CellExecutionError: a cell without the tag `raises-exception` failed.
    """
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    client = NotebookClient(
        notebook,
        kernel_name=CURRENT_ENV_KERNEL_NAME,
        kernel_manager_class=ThisPython,
        extra_arguments=["--log-level=ERROR"],
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        shutdown_kernel="immediate",  # as nbval does; seconds less
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=kernel_environment())


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


def lines_of(cell: NotebookNode) -> list[str]:
    """Return the lines of a file that holds `cell`."""
    return as_text(nbformat.v4.new_notebook(cells=[cell])).splitlines()


def differences(stored: NotebookNode, fresh: NotebookNode) -> Iterator[str]:
    """Yield, for each cell that differs, its id and the lines that do."""
    for before, now in zip(stored.cells, fresh.cells, strict=True):
        if before == now:
            continue
        lines = difflib.unified_diff(
            lines_of(before),
            lines_of(now),
            "stored",
            "fresh",
            n=0,
            lineterm="",
        )
        shown = [f"    {line[:90]}" for line in lines][:LINES_SHOWN]
        yield "\n".join([f"cell {now.id!r} is not as stored", *shown])


def check(path: Path, fresh: NotebookNode) -> list[str]:
    """Return where the file at `path` differs from what it should hold."""
    if path.read_text(encoding="utf-8") == as_text(fresh):
        return []
    found = list(differences(nbformat.read(path, as_version=4), fresh))
    return found or ["the cells agree, but not how the file is written"]


def write_if_changed(path: Path, text: str) -> bool:
    """Replace the contents of `path` in one step; say whether they changed."""
    if path.read_text(encoding="utf-8") == text:
        return False
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return True


def renew(path: Path, live: bool, check_only: bool) -> bool:
    """Run a notebook, and compare or store it; tell whether all is well."""
    start = time.perf_counter()
    try:
        fresh = run(path, live)
    except CellExecutionError as error:
        print(f"{path}: a cell failed\n{error}", file=sys.stderr)
        return False
    seconds = time.perf_counter() - start
    if check_only:
        found = check(path, fresh)
        state = "differs" if found else "the same"
    else:
        found = []
        changed = write_if_changed(path, as_text(fresh))
        state = "changed" if changed else "unchanged"
    print(f"{path}: {state} ({seconds:.1f} s)", flush=True)
    for difference in found:
        print(f"{path}: {difference}", file=sys.stderr, flush=True)
    return not found


def main() -> int:
    """Run the notebooks named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--live", action="store_true", help="store all anew")
    way.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    done = [renew(p, options.live, options.check) for p in options.notebooks]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
