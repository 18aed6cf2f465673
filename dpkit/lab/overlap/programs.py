"""Data parallelism in real processes: what the chapter launches."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import psutil  # type: ignore[import-untyped]
import torch.distributed as dist
from torch import Tensor, nn

from dpkit.data_parallel import DistributedDataParallel
from dpkit.processes import rank_device

Wrapper = DistributedDataParallel | nn.parallel.DistributedDataParallel
ENGINES: dict[str, Callable[[nn.Module], Wrapper]] = {
    "ours": DistributedDataParallel,
    "PyTorch's": nn.parallel.DistributedDataParallel,
}


def my_part(X: Tensor) -> Tensor:
    """Return this rank's rows, as tensor_split cuts them, on its device."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    return X.tensor_split(num_ranks)[rank].to(rank_device())


def train_under_torchrun(
    folder: str | Path, kill_at: int | None = None
) -> list[str]:
    """Train LeNet in two real processes; return the lines that they print.

    They save checkpoints in a folder, and look for them there. With
    ``kill_at``, all processes, ``torchrun`` too, are killed when the
    checkpoint of that step has been saved.
    """
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2"
    train = "-m dpkit train --model lenet --max-steps 20 --checkpoint-every 4"
    words = f"{torchrun} {train} --checkpoint".split()
    command = [sys.executable, *words, str(folder)]
    # Each line is read as it is printed.
    settings = {"TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1"}
    env = {"OMP_NUM_THREADS": "1", **os.environ, **settings}
    process = Popen(command, stdout=PIPE, stderr=DEVNULL, text=True, env=env)
    lines = []
    with process:
        try:
            for line in process.stdout or []:
                lines.append(line.rstrip())
                if kill_at and line.startswith(f"step {kill_at} of"):
                    _kill(process.pid)
        except BaseException:  # such as KeyboardInterrupt
            _kill(process.pid)
            raise
    if process.returncode and not kill_at:
        raise RuntimeError(f"it failed (exit status: {process.returncode})")
    return lines


def _kill(pid: int) -> None:
    """End a process and all that it has started, at once."""
    parent = psutil.Process(pid)
    for process in [*parent.children(recursive=True), parent]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
