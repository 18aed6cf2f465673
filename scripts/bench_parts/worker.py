"""Time a part of the dpkit of one commit, once for each line of input.

Usage: PYTHONPATH=a_tree python -P worker.py PART

It prints the CPU seconds of a call, in one thread. Two workers, one for each
of two commits, take turns (``commits``). So this imports nothing but torch and
what both commits have.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

Call = Callable[[], object]


def addition() -> Call:
    """Add two tensors of 64 × 64 on a simulated device."""
    x = torch.ones(64, 64, device=_devices(1, "sim")[0])
    return lambda: x + x


def product() -> Call:
    """Multiply two matrices of 64 × 64 on a simulated device."""
    x = torch.ones(64, 64, device=_devices(1, "sim")[0])
    return lambda: x @ x


def resnet_on_meta() -> Call:
    """Take a step of ResNet-18 with shapes and times, without values."""
    from torchvision.models import resnet18

    import dpkit

    dpkit.sim.configure(backing="meta")
    (device,) = _devices(1, "sim")
    net = resnet18().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    X = torch.empty(32, 3, 64, 64, device=device)
    y = torch.empty(32, dtype=torch.int64, device=device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()

    return step


def lenet_on_cpu() -> Call:
    """Take a step of LeNet on the CPU, in two halves."""
    return _lenet_on("cpu")


def lenet_on_sim() -> Call:
    """Take the same step on two simulated devices."""
    return _lenet_on("sim")


def _lenet_on(kind: str) -> Call:
    import dpkit

    net = nn.Sequential(
        *(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 128), nn.ReLU()),
        nn.Linear(128, 10),
    )
    names = [name for name, _ in net.named_parameters()]
    devices = _devices(2, kind)
    params = dpkit.replicate([p.detach() for p in net.parameters()], devices)
    X = torch.rand(64, 1, 28, 28)
    y = torch.arange(64) % 10
    loss = nn.CrossEntropyLoss(reduction="none")

    def scores(x: torch.Tensor, weights: Any) -> torch.Tensor:
        return functional_call(net, dict(zip(names, weights)), x)

    return lambda: dpkit.train_batch(
        scores, loss, X, y, params, devices, lr=0.01
    )


def _devices(count: int, kind: str) -> list[torch.device]:
    import dpkit

    return dpkit.devices(count, kind)


def first_import() -> None:
    """Import dpkit, torch being there."""
    import dpkit  # noqa: F401


def first_operation() -> Call:
    """Be the first to ask for a simulated device, and add on it."""
    import dpkit  # noqa: F401

    return lambda: addition()()


# How to make what is timed, and how many calls are timed together.
PARTS: dict[str, tuple[Callable[[], Call], int]] = {
    "x + x": (addition, 2000),
    "mm": (product, 1000),
    "resnet": (resnet_on_meta, 3),
    "lenet-cpu": (lenet_on_cpu, 5),
    "lenet-sim": (lenet_on_sim, 5),
    # A process does these only once.
    "import": (lambda: first_import, 1),
    "first": (first_operation, 1),
}


def main() -> None:
    """Answer each line; in the end, see that this was the dpkit meant."""
    torch.set_num_threads(1)
    make, count = PARTS[sys.argv[1]]
    call = make()
    for _ in sys.stdin:
        start = time.process_time()
        for _ in range(count):
            call()
        print((time.process_time() - start) / count, flush=True)
    import dpkit

    found = Path(dpkit.__file__).resolve()
    if not found.is_relative_to(Path.cwd()):
        sys.exit(f"dpkit of another tree was timed (file: {found})")


if __name__ == "__main__":
    main()
