"""Data parallelism in real processes: what the chapter launches."""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import psutil  # type: ignore[import-untyped]
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dpkit.data_parallel import DistributedDataParallel
from dpkit.lab.common.resnet import resnet18
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


def measured_ways() -> dict[str, tuple[float, float]]:
    """Return the seconds of the parts and the ways of a step, on this rank.

    They are those on the wall and those of a core, of the quicker of two
    runs. The ways take turns, so that what slows the machine slows all.
    """
    net = resnet18().to(rank_device())
    ours = DistributedDataParallel(resnet18().to(rank_device()))
    theirs = ENGINES["PyTorch's"](resnet18().to(rank_device()))
    X, y = torch.rand(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)
    whole = torch.zeros(sum(p.numel() for p in net.parameters()))
    ways: dict[str, Callable[[], object]] = {
        "backward alone": lambda: _step(net, X, y),
        "allreduce alone": lambda: dist.all_reduce(whole),
        "one for each gradient": lambda: _one_each(net, X, y),
        "one for all": lambda: _one_for_all(net, X, y),
        "ours, without sync": lambda: _without_sync(ours, X, y),
        "ours": lambda: _step(ours, X, y),
        "PyTorch's": lambda: _step(theirs, X, y),
    }
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(3):  # the first is to warm up
        for name, way in ways.items():
            dist.barrier()
            start, worked = time.perf_counter(), time.process_time()
            way()
            worked = time.process_time() - worked
            dist.barrier()
            taken[name].append((time.perf_counter() - start, worked))
    return {name: min(found[1:]) for name, found in taken.items()}


def _step(net: nn.Module, X: Tensor, y: Tensor) -> None:
    net.zero_grad()
    torch.autograd.backward(F.cross_entropy(net(X), y))


def _without_sync(net: DistributedDataParallel, X: Tensor, y: Tensor) -> None:
    with net.no_sync():
        _step(net, X, y)


def _one_each(net: nn.Module, X: Tensor, y: Tensor) -> None:
    _step(net, X, y)
    for p in net.parameters():
        if p.grad is not None:
            p.grad /= dist.get_world_size()
            dist.all_reduce(p.grad)


def _one_for_all(net: nn.Module, X: Tensor, y: Tensor) -> None:
    _step(net, X, y)
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    whole = parameters_to_vector(grads)
    dist.all_reduce(whole)
    vector_to_parameters(whole / dist.get_world_size(), grads)


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
