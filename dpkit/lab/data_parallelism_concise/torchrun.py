"""A file of Python started once for each device, by torchrun."""

import os
import subprocess
import sys
from pathlib import Path


def torchrun(num_processes: int, file: str | Path, *args: str | Path) -> None:
    """Run a file in real processes on this machine, and wait for their end.

    Each computes with one thread, unless ``OMP_NUM_THREADS`` says more.

    Raises:
        RuntimeError: If a process fails; the message holds its errors.
    """
    launcher = sys.executable, "-m", "torch.distributed.run", "--standalone"
    words = "--nproc-per-node", str(num_processes), str(file), *map(str, args)
    settings = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(
        [*launcher, *words], capture_output=True, text=True, env=settings
    )
    if done.returncode:
        raise RuntimeError(
            f"a process failed (exit status: {done.returncode})\n{done.stderr}"
        )
