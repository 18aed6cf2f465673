"""Write what runs on how many GPUs: the table of the how-to.

Usage: python scripts/what_runs_where.py [--check]

The numbers are those of the record `devices_asked` (`make reproduce`), and
the order is that of the contents. With `--check` nothing is written; the exit
status tells whether the table is up to date.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
NUMBERS_OF_GPUS = (1, 2, 4, 8)
TABLE = re.compile(
    r"(?<=\| 8 GPUs \|\n\|---\|---\|---\|---\|---\|\n)[^\n].*?(?=\n\n)", re.S
)
PROCESSES = re.compile(r"(?<=Besides, ).*?(?= start processes)", re.S)
PAGE = ROOT / "book" / "how-to.md"


def record() -> dict[str, list[list[Any]]]:
    """Return what each chapter asks for, in the order of the contents."""
    path = ROOT / "book" / "_data" / "devices_asked.json"
    found = json.loads(path.read_text("utf-8"))["chapters"]
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    files = [e["file"] for part in contents["parts"] for e in part["chapters"]]
    names = [Path(file).name for file in files]
    return {name: found[name] for name in names if name in found}


def requests(rows: list[list[Any]]) -> list[int]:
    """Return for how many devices a chapter asks, of what kind there is."""
    return sorted(
        {k for how, k, kind in rows if how == "devices" and not kind and k}
    )


def starts_processes(rows: list[list[Any]]) -> bool:
    """Return whether a chapter starts processes that take GPUs."""
    # The program train.py, of the chapter cluster, names the CPU itself.
    return any(
        program != "train.py" if how == "torchrun" else program is None
        for how, _, program in rows
        if how != "devices"
    )


def table() -> str:
    """Return the rows of the table."""
    lines = []
    for name, rows in record().items():
        if counts := requests(rows):
            cells = [
                ", ".join(str(k) for k in counts if k <= gpus) or "–"
                for gpus in NUMBERS_OF_GPUS
            ]
            lines.append(f"| {' | '.join([link(name), *cells])} |")
    return "\n".join(lines)


def processes() -> str:
    """Return the names of the chapters that start processes."""
    *first, last = [
        link(name) for name, rows in record().items() if starts_processes(rows)
    ]
    return f"{', '.join(first)} and {last}"


def link(name: str) -> str:
    """Return a link to a chapter, by its title."""
    return f"{{doc}}`{name}`"


def text() -> str:
    """Return what the page should hold."""
    written, tables = TABLE.subn(table(), PAGE.read_text("utf-8"))
    written, sentences = PROCESSES.subn(processes(), written)
    assert (tables, sentences) == (1, 1)
    return written


def main(check: bool) -> int:
    """Write the page, or only compare it."""
    is_stale = PAGE.read_text("utf-8") != text()
    if is_stale:
        name = PAGE.relative_to(ROOT)
        print(f"{name}: {'stale' if check else 'written'}")
        if not check:
            PAGE.write_text(text(), "utf-8")
    return int(check and is_stale)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
