"""Commands of the page, run as in a terminal, each in an empty folder."""

from pathlib import Path

from dpbook.common.terminal import run_command
from dpbook.own_script import train

SCRIPT = Path(train.__file__).read_text(encoding="utf-8")


def edited(*edits: tuple[str, str]) -> str:
    """Return the script with some of its lines replaced.

    Args:
        edits: Pairs of lines that are there, and of those in their place.

    Raises:
        ValueError: A script has no such lines.
    """
    text = SCRIPT
    for there, instead in edits:
        if there not in text:
            raise ValueError(f"the script has no {there!r}")
        text = text.replace(there, instead)
    return text


def terminal(command: str, script: str = SCRIPT) -> str:
    """Run a command that begins with ``python``; return all it prints.

    It runs in an empty folder, where the script is ``train.py``.
    """
    return run_command(command, script)


def sections(printed: str, *titles: str) -> str:
    """Return the sections of a report whose titles begin so."""
    found = [
        part.strip("\n")
        for part in printed.split("\n\n")
        if part.strip("\n").startswith(titles)
    ]
    return "\n\n".join(found)


def lines(printed: str, *beginnings: str) -> str:
    """Return the lines that begin so."""
    found = [x for x in printed.splitlines() if x.startswith(beginnings)]
    return "\n".join(found)
