"""Data parallelism in real processes: what the chapter launches."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

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


def gradients(
    engine: str, net: nn.Module, X: Tensor, y: Tensor
) -> list[Tensor]:
    """Return the gradients of a batch that the ranks divide evenly."""
    parallel = ENGINES[engine](net.to(rank_device()))
    F.cross_entropy(parallel(my_part(X)), my_part(y)).backward()
    return [p.grad for p in net.parameters() if p.grad is not None]


def in_order_of_readiness(order: list[list[int]]) -> list[float]:
    """Add up gradients in the order in which this rank has them: wrong.

    ``order`` has each rank's order of its gradients. That of parameter i on
    rank r is 10 · i + r.
    """
    rank = dist.get_rank()
    grads = [torch.tensor([10.0 * i + rank]) for i in range(len(order[rank]))]
    for i in order[rank]:
        dist.all_reduce(grads[i])
    return [grad.item() for grad in grads]


class Taken(NamedTuple):
    """What something took: on the wall, and of a core for this rank."""

    seconds: float
    core_seconds: float


def measured_ways(rows: int = 8, repetitions: int = 2) -> dict[str, Taken]:
    """Time the parts and the ways of a step; return the quickest of each.

    The ways take turns, so that what slows the machine slows all.
    """
    net = resnet18().to(rank_device())
    ours = DistributedDataParallel(resnet18().to(rank_device()))
    theirs = ENGINES["PyTorch's"](resnet18().to(rank_device()))
    X = torch.rand(rows, 1, 28, 28)
    y = torch.zeros(rows, dtype=torch.long)
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
    taken: dict[str, list[Taken]] = {name: [] for name in ways}
    for _ in range(repetitions + 1):
        for name, way in ways.items():
            dist.barrier()
            start, worked = time.perf_counter(), time.process_time()
            way()
            worked = time.process_time() - worked
            dist.barrier()
            seconds = time.perf_counter() - start
            taken[name].append(Taken(seconds, worked))
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
    whole = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    pieces = whole.split([grad.numel() for grad in grads])
    for grad, piece in zip(grads, pieces):
        grad.copy_(piece.view_as(grad))


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

    Raises:
        RuntimeError: It failed, and was not killed.
    """
    command = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", "--nproc-per-node", str(num_processes)),
        *("-m", "dpkit", "train", "--model", "lenet"),
        *("--max-steps", "20", "--checkpoint-every", "4"),
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
