"""What a command costs, from its start to its report."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from in_turns import in_turns

from bench_parts.ratios import Ratio, over
from bench_parts.rows import Row

# Three steps of two ranks, as anyone writes them.
SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if gpu else "cpu")
if gpu:
    torch.cuda.set_device(device)
net = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    x = torch.full((4, 8), 1.0 + dist.get_rank(), device=device)
    net(x).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def smallest_script() -> Row:
    """The smallest script: on simulated GPUs, and by real processes."""
    ranks = "--nproc-per-node", "2"
    commands = {
        "torchrun, gloo": ("torch.distributed.run", *ranks),
        "dpkit torchrun": ("dpkit", "torchrun", *ranks),
        "dpkit check": ("dpkit", "check", "--ranks", "2", "--steps", "3"),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "smallest.py")
        path.write_text(SCRIPT)
        seconds = in_turns(
            {
                name: _running(command, path)
                for name, command in commands.items()
            }
        )
    ratios = [
        Ratio(
            f"{name} over real processes", over(name, "torchrun, gloo"), 0.35
        )
        for name in ("dpkit torchrun", "dpkit check")
    ]
    return Row("the smallest script", "CPU time", seconds, ratios)


def _running(command: tuple[str, ...], path: Path) -> Callable[[], float]:
    """Return what runs a script and returns the CPU seconds of that."""
    return partial(_cpu_seconds, [sys.executable, "-m", *command, str(path)])


def _cpu_seconds(command: list[str]) -> float:
    before = _of_children()
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
