"""Keep what live cells have stored, as long as it still says the same.

A live cell, one tagged `nbval-ignore-output`, shows what differs from machine
to machine or from run to run, such as wall seconds. No test compares its
outputs. What it has stored stays if fresh outputs differ in their numbers
alone, and if the source is unchanged: the cell's metadata hold a fingerprint
of it. Imports are left out of it, as a function that moves to another module
does the same there. Simulated seconds are exact, so they count as text.
Pictures are not compared.
"""

import hashlib
import re

from nbformat import NotebookNode

TAG = "nbval-ignore-output"
FINGERPRINT = "ran"
# With its blanks, as a number may be padded; but not a simulated time.
NUMBER = re.compile(
    r"\s*+-?\d++(?:,\d{3})*+(?:\.\d++)?+(?:e[-+]?\d++)?+(?! \S+ simulated)"
)

# One statement, also one whose names stand in brackets on several lines.
IMPORT = re.compile(
    r"^(?:from \S+ import (?:\([^)]*\)|.*)|import .*)\n*", re.MULTILINE
)


def is_live(cell: NotebookNode) -> bool:
    """Return whether what `cell` shows may differ from run to run."""
    return cell.cell_type == "code" and TAG in cell.metadata.get("tags", [])


def fingerprint(cell: NotebookNode) -> str:
    """Return a short name of the source of `cell` without its imports."""
    source = IMPORT.sub("", cell.source).strip()
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def without_numbers(outputs: list[NotebookNode]) -> list[object]:
    """Return what `outputs` say, apart from numbers and pictures."""
    said: list[object] = []
    for output in outputs:
        texts = dict(output.get("data", {}))
        texts |= {k: output.get(k) for k in ("name", "text", "evalue")}
        for kind, text in sorted(texts.items()):
            picture = kind.startswith("image/")
            # Narrower numbers leave their column more or fewer blanks.
            kept = re.sub(" +", " ", NUMBER.sub(" #", str(text)))
            said.append((kind, picture or kept))
    return said


def keep_live(fresh: NotebookNode, stored: NotebookNode) -> None:
    """Put the stored outputs of a live cell back if they say the same."""
    for cell, before in zip(fresh.cells, stored.cells, strict=True):
        if (
            is_live(cell)
            and before.metadata.get(FINGERPRINT) == fingerprint(cell)
            and without_numbers(before.outputs)
            == without_numbers(cell.outputs)
        ):
            cell.outputs = before.outputs


def mark_live(notebook: NotebookNode) -> None:
    """Note in each live cell which source its outputs came from."""
    for cell in notebook.cells:
        cell.metadata.pop(FINGERPRINT, None)
        if is_live(cell):
            cell.metadata[FINGERPRINT] = fingerprint(cell)
