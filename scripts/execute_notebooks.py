"""Run notebooks from the top and store normalised outputs.

Usage: python scripts/execute_notebooks.py book/*.ipynb

Each notebook runs in a fresh kernel of this Python, in its own folder. What
differs between two runs without meaning (times, ids, how a stream was cut) is
removed, so that running twice leaves no difference. A file is written only if
its contents changed, and only after its last cell ran.
"""

import argparse
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager
from traitlets import default

METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SECONDS_PER_CELL = 600


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
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=kernel_environment())


def merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring pieces of one stream: where it is cut is chance."""
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            merged.append(output)
    return merged


def shorten_error(output: NotebookNode) -> None:
    """Keep the last line of a traceback; the others name installed files."""
    if output.output_type == "error":
        output.traceback = [f"{output.ename}: {output.evalue}"]


def number_cells(notebook: NotebookNode) -> None:
    """Give every cell an id that stays, and code cells the counts from 1."""
    count = 0
    seen: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        if not VALID_ID.fullmatch(cell.get("id", "")) or cell.id in seen:
            cell.id = f"cell-{index}"
        seen.add(cell.id)
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count


def normalise(notebook: NotebookNode) -> None:
    """Remove from `notebook` what differs between two equal runs."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = merge_streams(cell.outputs)
            for output in cell.outputs:
                shorten_error(output)
    number_cells(notebook)
    nbformat.validate(notebook)


def write_if_changed(path: Path, text: str) -> bool:
    """Replace the contents of `path` in one step; say whether they changed."""
    if path.read_text(encoding="utf-8") == text:
        return False
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return True


def run(path: Path) -> bool:
    """Run and store the notebook at `path`; say whether it changed."""
    notebook = nbformat.read(path, as_version=4)
    execute(notebook, path.parent)
    normalise(notebook)
    text = nbformat.writes(notebook, indent=1, ensure_ascii=False)
    return write_if_changed(path, text.rstrip("\n") + "\n")


def main() -> int:
    """Run the notebooks named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    for path in parser.parse_args().notebooks:
        start = time.perf_counter()
        try:
            changed = run(path)
        except CellExecutionError as error:
            print(f"{path}: a cell failed\n{error}", file=sys.stderr)
            return 1
        seconds = time.perf_counter() - start
        state = "changed" if changed else "unchanged"
        print(f"{path}: {state} ({seconds:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
