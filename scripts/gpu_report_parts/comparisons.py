"""Print the tables of simulated and measured times, from the chapters.

The cells that call ``simulate_and_measure`` make them. Where a GPU is there,
each table has what was measured on it.

Usage: python -m gpu_report_parts.comparisons [CHAPTER …]
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from chapters.run_cells import execute
from nbclient.exceptions import CellExecutionError

from dpkit.accelerator import real_devices
from gpu_report_parts.plan import ROOT

CALL = "simulate_and_measure("
MEASURED = "(measured here)"


def has_table(cell: nbformat.NotebookNode) -> bool:
    """Return whether a cell compares simulated with measured times."""
    return cell.cell_type == "code" and CALL in cell.source


def tables(path: Path) -> Iterator[tuple[str, str]]:
    """Run a chapter; yield its tables: the cell, and the table as text.

    Raises:
        CellExecutionError: a cell failed. What was before it is yielded.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    failure = None
    try:
        execute(notebook, path.parent)
    except CellExecutionError as error:
        failure = error
    for cell in filter(has_table, notebook.cells):
        for output in cell.outputs:
            if "data" in output:
                yield cell.id, output.data["text/plain"]
    if failure is not None:
        raise failure


def main(*names: str) -> int:
    """Run the chapters with such cells; return 1 if something is missing."""
    wrong = []
    count = 0
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        if not any(map(has_table, cells)) or path.stem not in (
            names or [path.stem]
        ):
            continue
        try:
            for cell, table in tables(path):
                print(f"{path.stem}, {cell}\n{table}\n", flush=True)
                count += 1
                if real_devices() and MEASURED not in table:
                    wrong.append(f"{cell}: not measured on the GPU here")
        except CellExecutionError as error:
            wrong.append(f"{path.stem}: a cell failed\n{error}")
    print(*wrong, f"tables: {count}, wrong: {len(wrong)}", sep="\n")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
