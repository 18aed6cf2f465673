"""Commands run as in a terminal, each in an empty folder."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from dpkit.processes import Command, Process, fork_server

# What ``python -m module arguments`` does, given the module and arguments.
RUN_MODULE = (
    "import runpy, sys; del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
ROOTS = [str(Path(path).resolve()) for path in sys.path if path]


def run_command(command: str, script: str) -> str:
    """Run a command in an empty folder; return all that it prints.

    Args:
        command: It begins with ``python -m``, and calls the script
            ``train.py``.
        script: The text of the script.
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


def _start(arguments: list[str], folder: str, printed: int) -> Process:
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
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    option, module, *others = arguments
    assert option == "-m"
    path = [folder, *ROOTS, *sys.path]
    command = Command(
        RUN_MODULE,
        [module, *others],
        environment=environment,
        cwd=folder,
        path=path,
    )
    return server.fork(command, [0, printed, printed])
