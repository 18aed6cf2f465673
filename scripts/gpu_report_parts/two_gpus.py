"""What two GPUs can show: numbers that agree, and times side by side.

Usage: python -m gpu_report_parts.two_gpus data-parallel (or another check)

Times are the least, the median and the greatest of a few.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from in_turns import report, time_in_turns
from torch import Tensor, nn
from torch.nn import functional as F

import dpkit
from dpbook.common.resnet import resnet18
from dpkit.accelerator import real_devices
from dpkit.collectives import ALGORITHMS
from gpu_report_parts import two_ranks
from gpu_report_parts.nets import batch, compare, small_net, trained

Devices = list[torch.device]


def amount(devices: Devices, on_gpus: int, in_a_rehearsal: int) -> int:
    """Return how much to time: a rehearsal's times tell nothing."""
    on_a_double = "CUDA_DOUBLE" in os.environ  # tests/cuda_double sets it
    is_real = devices[0].type == "cuda" and not on_a_double
    return on_gpus if is_real else in_a_rehearsal


def launch(devices: Devices, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """Run a function in two processes; report which process hangs.

    That takes less than the limit of a part, past which nothing is named.
    """
    return dpkit.launch(
        fn,
        2,
        *args,
        backend=two_ranks.backend(devices),
        timeout_seconds=amount(devices, 40, 160),
    )


def images(devices: Devices) -> tuple[Tensor, Tensor]:
    """Return images and labels for ResNet-18, on the first device."""
    num_rows = amount(devices, 512, 2)
    X = torch.randn(num_rows, 1, 28, 28, device=devices[0])
    return X, torch.randint(10, (num_rows,), device=devices[0])


def torchs(net: nn.Module, devices: Devices) -> nn.Module:
    """Wrap a module by PyTorch's DataParallel; on the CPU it does nothing."""
    return nn.DataParallel(net, [device.index for device in devices])


def show_steps(nets: dict[str, nn.Module], devices: Devices) -> None:
    """Print what a step of ResNet-18 takes, by each way."""
    X, y = images(devices)

    def step(net: nn.Module) -> None:
        net.zero_grad()
        F.cross_entropy(net(X), y).backward()

    steps = {name: partial(step, net) for name, net in nets.items()}
    wait = partial(dpkit.synchronize, devices)
    seconds = time_in_turns(steps, wait=wait)
    report(f"forward and backward of ResNet-18, {len(y)} images", seconds)


def data_parallel(devices: Devices) -> None:
    """Compare DataParallel with nn.DataParallel."""
    first = devices[0]
    norm = first.type == "cuda"  # else PyTorch's splits nothing
    ours, theirs = (
        trained(wrap(small_net(norm).to(first), devices), first)
        for wrap in (dpkit.DataParallel, torchs)
    )
    compare("dpkit's and PyTorch's wrapper", ours, theirs)
    nets = {
        "dpkit.DataParallel": dpkit.DataParallel(
            resnet18().to(first), devices
        ),
        "nn.DataParallel": torchs(resnet18().to(first), devices),
    }
    show_steps(nets, devices)


def wrapper(devices: Devices) -> None:
    """Compare DataParallel on two GPUs with one GPU."""
    first = devices[0]
    alone = trained(small_net(norm=False).to(first), first)
    net = dpkit.DataParallel(small_net(norm=False).to(first), devices)
    compare("two GPUs and one", trained(net, first), alone)
    nets = {
        "two GPUs": dpkit.DataParallel(resnet18().to(first), devices),
        "one GPU": resnet18().to(first),
    }
    show_steps(nets, devices)


def evaluation(devices: Devices) -> None:
    """Compare accuracy on two GPUs with that on one, of wrappers too."""
    first = devices[0]
    batches = [batch(seed) for seed in range(4)]
    net = small_net().to(first)
    ways = {
        "one GPU": (net, devices[:1]),
        "two GPUs": (net, devices),
        "of dpkit.DataParallel": (dpkit.DataParallel(net, devices), devices),
        "of nn.DataParallel": (torchs(net, devices), devices),
    }
    found = {
        name: dpkit.evaluate_accuracy(net, batches, on)
        for name, (net, on) in ways.items()
    }
    print(found)
    if len(set(found.values())) > 1:
        raise ValueError(f"the accuracies differ ({found})")
    big = resnet18().to(first)
    some = [images(devices)] * 4
    measured = {
        f"{len(on)} GPU(s)": partial(dpkit.evaluate_accuracy, big, some, on)
        for on in (devices[:1], devices)
    }
    wait = partial(dpkit.synchronize, devices)
    seconds = time_in_turns(measured, wait=wait)
    report("evaluation of ResNet-18, 4 batches", seconds)


def collectives(devices: Devices) -> None:
    """Every allreduce of dpkit: its sum and its time; then NCCL's."""
    count = amount(devices, 2**24, 2**16)
    tensors = [
        torch.full((count,), rank + 1.0, device=device)
        for rank, device in enumerate(devices)
    ]
    ways: dict[str, Callable[[], None]] = {}
    for name in ALGORITHMS:
        ranks = 1 if name == "hierarchical" else None
        reduce = partial(dpkit.allreduce, algorithm=name, ranks_per_node=ranks)
        copies = [tensor.clone() for tensor in tensors]
        reduce(copies)
        if not all(bool((copy == 3).all()) for copy in copies):
            raise ValueError(f"the sum is wrong (algorithm: {name})")
        ways[name] = partial(reduce, tensors)
    print(f"right sums: {', '.join(ALGORITHMS)}")
    wait = partial(dpkit.synchronize, devices)
    seconds = time_in_turns(ways, wait=wait)
    seconds |= launch(devices, two_ranks.allreduce_seconds, count)[0]
    report(f"allreduce of {4 * count / 2**20:g} MiB on each of two", seconds)


def ddp(devices: Devices) -> None:
    """Compare DistributedDataParallel by hand with PyTorch's, over NCCL."""
    print(f"two processes, {two_ranks.backend(devices)}")
    for ours, theirs in launch(devices, two_ranks.numbers):
        compare("by hand and PyTorch's", ours, theirs)
    num_rows = amount(devices, 512, 2)
    found = launch(devices, two_ranks.step_seconds, num_rows)
    report(f"steps of ResNet-18, {num_rows} images on each", found[0])


CHECKS: dict[str, Callable[[Devices], None]] = {
    "data-parallel": data_parallel,
    "wrapper": wrapper,
    "evaluation": evaluation,
    "collectives": collectives,
    "ddp": ddp,
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](real_devices()[:2])
