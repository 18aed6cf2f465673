"""``python -m dpkit train`` in processes of its own, killed if so wished."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

STEPS, EVERY = 20, 4


def train_under_torchrun(
    folder: str | Path, kill_at: int | None = None, num_processes: int = 2
) -> list[str]:
    """Train a small model in real processes; return what they print.

    ``torchrun`` is the program ``python -m torch.distributed.run``.

    Args:
        folder: Where checkpoints are saved, and looked for.
        kill_at: Kill all processes, ``torchrun`` too, when the checkpoint of
            this step has been saved; None: let them come to the end.
        num_processes: How many there are.

    Returns:
        The lines that rank 0 printed.

    Raises:
        RuntimeError: It failed, and was not killed.
    """
    command = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", "--nproc-per-node", str(num_processes)),
        *("-m", "dpkit", "train", "--model", "lenet"),
        *("--max-steps", str(STEPS), "--checkpoint-every", str(EVERY)),
        *("--checkpoint", str(folder)),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "TQDM_DISABLE": "1",
            "PYTHONUNBUFFERED": "1",  # we read each line as it is printed
        },
    )
    lines = []
    assert process.stdout is not None
    with process:
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if kill_at and line.startswith(f"step {kill_at} of"):
                    _kill(process.pid)
        finally:
            if process.poll() is None:
                _kill(process.pid)
    if process.returncode and not kill_at:
        raise RuntimeError(f"it failed (exit status: {process.returncode})")
    return lines


def _kill(pid: int) -> None:
    """End a process and all that it has started, at once."""
    parent = psutil.Process(pid)
    for process in [*parent.children(recursive=True), parent]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
