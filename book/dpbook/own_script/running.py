"""Commands of the page, run as in a terminal, each in an empty folder."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from dpbook.own_script import train
from dpkit.processes.forking import fork_server
from dpkit.processes.server import Command
from dpkit.processes.starting import Process

SCRIPT = Path(train.__file__).read_text(encoding="utf-8")
# What ``python -m module arguments`` does, given the module and arguments.
RUN_MODULE = (
    "import runpy, sys; del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
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
    with TemporaryDirectory() as folder, TemporaryFile("w+") as printed:
        Path(folder, "train.py").write_text(script, encoding="utf-8")
        process = _start(shlex.split(command)[1:], folder, printed.fileno())
        try:
            process.wait()
        finally:
            process.kill()  # nothing, where it has ended
        printed.seek(0)
        return printed.read()


def _start(words: list[str], folder: str, printed: int) -> Process:
    """Start Python in a folder: a fork of one that has imported torch.

    Where it cannot be forked, it is a new Python.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(ROOTS),
    }
    server = fork_server(environment)
    if server is None:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    option, module, *arguments = words
    assert option == "-m"
    path = [folder, *ROOTS, *sys.path]
    command = Command(
        RUN_MODULE, [module, *arguments], environment, folder, path
    )
    return server.fork(command, [0, printed, printed])


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
