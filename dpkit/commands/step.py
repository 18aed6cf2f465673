"""``python -m dpkit step``: one data-parallel step on the devices here."""

import argparse
import copy

import torch
from torch import Tensor, nn

from dpkit.accelerator import real_devices
from dpkit.commands.parser import Commands, refuse
from dpkit.data_parallel import DataParallel
from dpkit.machine import Timer, devices
from dpkit.units import show_seconds

_SUMMARY = "train one step on k devices and on one, compare and time them"
_DESCRIPTION = f"{_SUMMARY}; one device is compared with the CPU"
NUM_FEATURES = 1024
NUM_ROWS = 512
NEAR = 1e-5  # the sums of the gradients are taken in another order


def add_step(commands: Commands) -> None:
    """Add the command to the parser of all."""
    step = commands.add_parser("step", help=_SUMMARY, description=_DESCRIPTION)
    step.add_argument(
        "count",
        metavar="k",
        type=int,
        nargs="?",
        help="how many devices (default: all GPUs; without one, two)",
    )
    step.set_defaults(command=print_step)


def print_step(options: argparse.Namespace, command: str) -> None:
    """Print how long a step takes, and whether its result is right."""
    count = options.count
    if count is None:
        count = len(real_devices()) or 2
    try:
        used = devices(count)
    except (RuntimeError, ValueError) as error:
        refuse(error)
    torch.manual_seed(0)
    net = nn.Sequential(
        *(
            nn.Linear(NUM_FEATURES, NUM_FEATURES),
            nn.ReLU(),
            nn.Linear(NUM_FEATURES, 10),
        )
    )
    X = torch.randn(NUM_ROWS, NUM_FEATURES)
    y = torch.randint(10, (NUM_ROWS,))
    one = used[0] if len(used) > 1 else torch.device("cpu")
    together, timer = trained(net, X, y, used)
    alone, timer_of_one = trained(net, X, y, [one])
    difference = max(
        float((a - b).abs().max())
        for a, b in zip(together, alone, strict=True)
    )
    names = ", ".join(map(str, used))
    print(f"on {names}: {show_seconds(timer.seconds)}, {timer.clock}")
    print(f"on {one} alone: {show_seconds(timer_of_one.seconds)}")
    if difference > NEAR:
        refuse(f"the parameters differ (most: {difference:.1e})")
    print(f"the parameters are those of {one} alone, within {NEAR:.0e}")


def trained(
    net: nn.Module, X: Tensor, y: Tensor, used: list[torch.device]
) -> tuple[list[Tensor], Timer]:
    """Train a copy of ``net`` for two steps; return it, and the second's time.

    The first step is to warm up: in it libraries load their kernels.

    Args:
        net: A classifier; it stays as it is.
        X: A batch, of shape (rows, ...).
        y: The classes of its rows, of shape (rows,).
        used: The devices to split the rows over.
    """
    parallel = DataParallel(copy.deepcopy(net).to(used[0]), used)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(2):
        with Timer(used) as timer:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(X), y.to(used[0]))
            loss.backward()
            optimizer.step()
    return [p.detach().cpu() for p in parallel.parameters()], timer
