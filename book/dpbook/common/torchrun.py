"""Programs started once for each device, by torchrun."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

import psutil  # type: ignore[import-untyped]

from dpkit.processes import (
    Command,
    Process,
    absolute_path,
    fork_server,
    gpus_for_ranks,
)

FORKED_TORCHRUN = "from dpbook.common.forked_torchrun import main; main()"


def torchrun(
    num_processes: int, *command: str | Path, kill_at: str = ""
) -> list[str]:
    """Run a program in real processes on this machine; return its lines.

    torchrun's agent starts them. Where no GPUs are used, they are forked from
    a Python that has imported torch (see ``forked_torchrun``).
    The command is a file of Python, or ``-m`` and a module, and arguments.
    Each process has one thread, unless ``OMP_NUM_THREADS`` says more. It sees
    the GPUs, unless ``DPKIT_DEVICES`` asks for other devices. With
    ``kill_at``, all are killed when a line that begins so is printed. If a
    process fails, a RuntimeError is raised, which holds its errors.
    """
    lines: list[str] = []
    with (
        TemporaryDirectory() as logs,  # where torchrun leaves a folder
        TemporaryFile("w+") as errors,
    ):
        arguments = str(num_processes), logs, *map(str, command)
        run, printed = _start(arguments, errors.fileno())
        with printed:
            try:
                for line in printed:
                    lines.append(line.decode().rstrip())
                    if kill_at and lines[-1].startswith(kill_at):
                        _kill(run.pid)
                status = run.wait()
            except BaseException:  # such as KeyboardInterrupt
                _kill(run.pid)
                raise
        if status and not kill_at:
            errors.seek(0)
            facts = f"(exit status: {status})\n{errors.read()}"
            raise RuntimeError(f"a process failed {facts}")
    return lines


def _start(arguments: Sequence[str], errors: int) -> tuple[Process, IO[bytes]]:
    """Start torchrun; return its process, and what its ranks print.

    It is forked where that can be. Where ranks use GPUs it cannot: torchrun
    asks for these, and CUDA does not work in forks of a process that has.

    Args:
        arguments: The number of ranks, a folder for logs, and the program.
        errors: The file that the ranks write their errors to.
    """
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    has_gpus = bool(gpus_for_ranks())
    if not has_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    read, write = os.pipe()
    try:
        server = None if has_gpus else fork_server(environment)
        if server is None:
            run: Process = _new_torchrun(arguments, environment, write, errors)
        else:
            folder, path = os.getcwd(), absolute_path()
            command = Command(
                FORKED_TORCHRUN,
                [*arguments],
                environment=environment,
                cwd=folder,
                path=path,
            )
            run = server.fork(command, [0, write, errors])
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return run, open(read, "rb")


def _new_torchrun(
    arguments: Sequence[str],
    environment: dict[str, str],
    out: int,
    errors: int,
) -> Popen[bytes]:
    """Start torchrun as in a terminal, by the arguments of ``_start``."""
    count, logs, *program = arguments
    launcher = sys.executable, "-m", "torch.distributed.run", "--standalone"
    settings = environment | {
        "TQDM_DISABLE": "1",
        "PYTHONUNBUFFERED": "1",  # each line is read as it is printed
    }
    return Popen(
        [
            *launcher,
            f"--nproc-per-node={count}",
            f"--log-dir={logs}",
            *program,
        ],
        env=settings,
        stdout=out,
        stderr=errors,
    )


def _kill(pid: int) -> None:
    """End a process and all that it has started, at once."""
    parent = psutil.Process(pid)
    for process in [*parent.children(recursive=True), parent]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
