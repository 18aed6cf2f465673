"""Programs started once for each device, by torchrun."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory, TemporaryFile

import psutil  # type: ignore[import-untyped]

from dpkit.processes.rank import gpus_for_ranks


def torchrun(
    num_processes: int, *words: str | Path, kill_at: str = ""
) -> list[str]:
    """Run a program in real processes on this machine; return its lines.

    The words are a file of Python, or ``-m`` and a module, and arguments. Each
    process has one thread, unless ``OMP_NUM_THREADS`` says more. It sees the
    GPUs, unless ``DPKIT_DEVICES`` asks for other devices. With ``kill_at``,
    all are killed when a line that begins so is printed. If a process fails, a
    RuntimeError is raised, which holds its errors.
    """
    launcher = sys.executable, "-m", "torch.distributed.run", "--standalone"
    count = f"--nproc-per-node={num_processes}"
    settings = {"OMP_NUM_THREADS": "1", **os.environ, "TQDM_DISABLE": "1"}
    settings["PYTHONUNBUFFERED"] = "1"  # each line is read as it is printed
    if not gpus_for_ranks():
        settings["CUDA_VISIBLE_DEVICES"] = ""
    lines: list[str] = []
    with (
        TemporaryDirectory() as logs,  # where torchrun leaves a folder
        TemporaryFile("w+") as errors,
        Popen(
            [*launcher, count, f"--log-dir={logs}", *map(str, words)],
            env=settings,
            stdout=PIPE,
            stderr=errors,
        ) as run,
    ):
        try:
            for line in run.stdout or []:
                lines.append(line.decode().rstrip())
                if kill_at and lines[-1].startswith(kill_at):
                    _kill(run.pid)
        except BaseException:  # such as KeyboardInterrupt
            _kill(run.pid)
            raise
        if run.wait() and not kill_at:
            errors.seek(0)
            facts = f"(exit status: {run.returncode})\n{errors.read()}"
            raise RuntimeError(f"a process failed {facts}")
    return lines


def _kill(pid: int) -> None:
    """End a process and all that it has started, at once."""
    parent = psutil.Process(pid)
    for process in [*parent.children(recursive=True), parent]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
