"""The programs of the chapter, each run as in a terminal."""

from pathlib import Path
from types import ModuleType

from dpbook.common.terminal import run_command
from dpbook.common.torchrun import torchrun

PRINTED = "accuracy", "last loss"  # what a line of a program begins with


def simulated_gpus(program: ModuleType, start: str) -> str:
    """Run a program on two simulated GPUs; return the line that it prints.

    Args:
        program: One of the three.
        start: The file with the weights and the batches.

    Raises:
        RuntimeError: The program failed; the error says how.
    """
    command = f"python -m dpkit torchrun --nproc-per-node 2 train.py {start}"
    script = Path(str(program.__file__)).read_text(encoding="utf-8")
    return _line(run_command(command, script).splitlines())


def real_processes(program: ModuleType, start: str) -> str:
    """Run a program in two processes, on GPUs if there are two.

    Else they compute on the CPU, and gloo carries their messages. The
    arguments, the line and the error are those of ``simulated_gpus``.
    """
    return _line(torchrun(2, str(program.__file__), start))


def _line(printed: list[str]) -> str:
    found = [line for line in printed if line.startswith(PRINTED)]
    if len(found) != 1:
        lines = "\n".join(printed)
        raise RuntimeError(f"the program printed no result:\n{lines}")
    return found[0]
