"""Run a script, and write its parameters' sums after each step.

Usage: watched.py [--write FILE] [--before FILE] SCRIPT [ARGUMENT ...]
       watched.py [--write FILE] [--before FILE] -m MODULE [ARGUMENT ...]

It is run by torchrun, or by ``python -m dpkit torchrun``, in the place of the
script. FILE.RANK gets a line for each step of the script's first optimizer:
of each parameter, as far as this rank holds it, the shape, the sum and the
norm, in float64. The generators are seeded first. ``--before`` is a file that
is run before the script, such as one that puts back names that are no more.
"""

import argparse
import json
import os
import random
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook


def sums(x: torch.Tensor) -> tuple[list[int], float, float]:
    """Return shape, sum and norm of what this rank holds of a tensor."""
    local = getattr(x, "to_local", lambda: x)
    with torch.no_grad():
        held = local().detach().to("cpu").double()
    return list(held.shape), held.sum().item(), held.norm().item()


def watch(name: str | None, steps: int | None) -> None:
    """Write to a file what the first optimizer has after each step.

    Args:
        name: The file, without the rank; None: nothing is written.
        steps: The process ends after so many; None: with the script.
    """
    first: list[Optimizer] = []
    rank = os.environ.get("RANK", 0)
    path = Path(f"{name}.{rank}") if name else None

    def stepped(optimizer: Optimizer, *_: Any) -> None:
        if first and optimizer is not first[0]:
            return
        first.append(optimizer)
        groups = optimizer.param_groups
        if path is not None:  # print() is what scripts silence on some ranks
            held = [sums(p) for group in groups for p in group["params"]]
            with path.open("a") as lines:
                lines.write(json.dumps(held) + "\n")
        if len(first) == steps:
            torch.distributed.barrier()
            sys.exit(0)

    if name or steps:
        register_optimizer_step_post_hook(stepped)


def seed() -> None:
    """Seed what draws, on each rank with another number."""
    rank = int(os.environ.get("RANK", 0))
    random.seed(rank)
    numpy.random.seed(rank)
    torch.manual_seed(rank)


def run_watched(arguments: list[str], steps: int | None = None) -> None:
    """Run a script as the program of this process.

    Args:
        arguments: As on the command line.
        steps: After so many steps of its first optimizer it ends.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--write")
    parser.add_argument("--before", action="append", default=[])
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    for file in options.before:
        runpy.run_path(file)
    if options.write:
        seed()
    watch(options.write, steps)
    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.script))
        runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    run_watched(sys.argv[1:])
