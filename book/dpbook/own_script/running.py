"""Commands of the page, run as in a terminal, each in an empty folder."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbook.own_script import train

SCRIPT = Path(train.__file__).read_text(encoding="utf-8")
ROOTS = [str(Path(path).resolve()) for path in sys.path if path]


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
    with TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, *shlex.split(command)[1:]],
            cwd=folder,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(ROOTS),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return done.stdout


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
