"""Run a program with the CPU in place of GPUs: a rehearsal.

Usage: python -m gpu_report_parts.stand_in 2 -m MODULE … (or FILE …)

All that dpkit knows of real accelerators it has from one function. Here that
function names the CPU, as often as GPUs are rehearsed. Processes that the
program starts see the machine as it is.
"""

import runpy
import sys
from pathlib import Path

import torch

import dpkit
from dpkit import accelerator


def stand_in(count: int) -> None:
    """Make dpkit find ``count`` CPUs where it looks for GPUs."""
    assert dpkit.__name__  # its modules have taken the function by its name
    real = accelerator.real_devices

    def found() -> list[torch.device]:
        return [torch.device("cpu")] * count

    for module in list(sys.modules.values()):
        if vars(module).get("real_devices") is real:
            vars(module)["real_devices"] = found


def main(count: str, *arguments: str) -> None:
    """Run the program that the arguments name, as Python does."""
    stand_in(int(count))
    first, *others = arguments
    if first == "-m":
        name, *others = others
        sys.argv = [name, *others]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *others]
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
