"""DistributedDataParallel by hand, timed beside PyTorch's.

Both train a copy of one network in the same pair of processes, and take
turns: what slows the machine slows both.
"""

import time
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.data_parallel import DistributedDataParallel
from dpkit.lab.common.resnet import resnet18

REPETITIONS, STEPS, ROWS = 7, 3, 16

Seconds = dict[str, list[float]]


def step_seconds() -> Seconds:
    """Return seconds a step of ResNet-18; the program of one rank."""
    device = dpkit.processes.rank_device()
    generator = torch.Generator().manual_seed(dist.get_rank())
    X = torch.randn(ROWS, 1, 28, 28, generator=generator).to(device)
    y = torch.randint(10, (ROWS,), generator=generator).to(device)
    nets: dict[str, nn.Module] = {
        "PyTorch's": nn.parallel.DistributedDataParallel(
            resnet18().to(device)
        ),
        "by hand": DistributedDataParallel(resnet18().to(device)),
    }
    optimizers = {
        name: torch.optim.SGD(net.parameters(), 0.01)
        for name, net in nets.items()
    }
    seconds: Seconds = {name: [] for name in nets}
    for repetition in range(-2, REPETITIONS):  # two to warm up
        # Each goes first as often as the other.
        for name in sorted(nets, reverse=bool(repetition % 2)):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(STEPS):
                optimizers[name].zero_grad()
                F.cross_entropy(nets[name](X), y).backward()
                optimizers[name].step()
            dist.barrier()  # a step is over when both ranks are
            if repetition >= 0:
                passed = time.perf_counter() - start
                seconds[name].append(passed / STEPS)
    return seconds


def bench_ddp() -> None:
    """A step of ResNet-18 on 2 processes, by hand and by PyTorch."""
    seconds, _ = dpkit.launch(
        step_seconds, 2, backend="gloo", timeout_seconds=600
    )
    print(f"\nResNet-18, 2 gloo processes, {ROWS} images of 28 × 28 each")
    first = median(seconds["PyTorch's"])
    for name, taken in seconds.items():
        low, middle, high = (
            1e3 * t for t in (min(taken), median(taken), max(taken))
        )
        print(
            f"  {name:<24} {low:10.1f} {middle:10.1f} {high:10.1f} ms"
            f"   {median(taken) / first:6.2f} ×"
        )
