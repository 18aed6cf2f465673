"""Give notebooks the one form in which the repository stores them."""

import re

import nbformat
from nbformat import NotebookNode

METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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
    notebook.nbformat = 4
    notebook.nbformat_minor = 5
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = merge_streams(cell.outputs)
            for output in cell.outputs:
                shorten_error(output)
    number_cells(notebook)
    nbformat.validate(notebook)


def as_text(notebook: NotebookNode) -> str:
    """Return the contents of the file that holds `notebook`."""
    text = nbformat.writes(notebook, indent=1, ensure_ascii=False)
    return str(text).rstrip("\n") + "\n"
