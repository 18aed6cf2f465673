"""``python -m dpkit calibrate``: this machine, measured as a preset."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch

from dpkit import sim
from dpkit.accelerator import real_devices
from dpkit.calibration import (
    CASES,
    Calibration,
    Prediction,
    doubts,
    machine_load,
    predictions_table,
    provenance,
)
from dpkit.calibration.calibrate import calibrate
from dpkit.calibration.predictions import predictions
from dpkit.commands.parser import PROGRAM, Commands, refuse, refuse_output
from dpkit.sim.changes import why_apart
from dpkit.sim.hardware import save

# In the median of the steps; on a machine without other work it was 1.2.
MOST_FACTOR = 2.0


def add_calibrate(commands: Commands) -> None:
    """Add the command to the parser of all."""
    summary = "measure this machine, as a preset to simulate"
    parser = commands.add_parser(
        "calibrate",
        help=summary,
        description=f"{summary}: by microbenchmarks, in about a minute; then "
        "compare simulated training steps with measured ones",
    )
    add = parser.add_argument
    add(
        "--device",
        default="cpu",
        help="what to measure: cpu (the default), or a GPU such as cuda:0",
    )
    add(
        "--output",
        default="this-machine.json",
        type=Path,
        help="the file to write (default: %(default)s)",
    )
    add(
        "--no-check",
        dest="check",
        action="store_false",
        help="measure no training steps",
    )
    add(
        "--force",
        action="store_true",
        help="write the file even if simulated steps are off by more than "
        f"a factor of {MOST_FACTOR:g}, in the median",
    )
    parser.set_defaults(command=calibrate_machine)


def calibrate_machine(options: argparse.Namespace, command: str) -> None:
    """Measure this machine; write presets, unless they are far off."""
    device = _device(options.device)
    _check_output(options.output)
    if options.check:
        _check_simulation(device)
    facts = provenance(command, device)
    facts["load"] = machine_load()
    found = _measure(device, facts["load"])
    facts |= {"times": found.times, "spread": found.spread}
    if options.check:
        rows = predictions(found.accelerator, found.host, found.link, device)
        facts["check"] = [asdict(row) for row in rows]
        print(f"\nTraining steps that it has not seen, on {device}:\n")
        print(predictions_table(rows), flush=True)
        _judge(rows, options.force)
    path = options.output
    save(
        path,
        accelerator=found.accelerator,
        host=found.host,
        link=found.link,
        provenance=facts,
    )
    print(f"\nwritten: {path}; to simulate this machine:")
    parts = (f'{x}="{path}"' for x in ("accelerator", "host", "link"))
    print(f"dpkit.sim.configure({', '.join(parts)})")


def _device(name: str) -> torch.device:
    """Return the device of this name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        refuse(f"not a CPU or GPU (--device: {name!r}); say cpu or cuda:0")
    gpus = real_devices()
    index = device.index or 0
    if index >= len(gpus):
        refuse(f"there is no such GPU (--device: {name!r}, GPUs: {len(gpus)})")
    return gpus[index]  # only on CUDA


def _check_output(path: Path) -> None:
    """Refuse a file that could not be written, or that is not JSON."""
    if path.suffix != ".json":
        refuse(f"the name must end in .json (--output: '{path}')")
    refuse_output("--output", path)


def _check_simulation(device: torch.device) -> None:
    """Refuse if training steps could not be simulated.

    Where a process trains on one kind of device, a GPU is measured before
    there are simulated devices: then it shows later whether they fit.
    """
    try:
        if device.type == "cpu" or not why_apart():
            sim.register()
        for case in CASES:
            case.make()
    except (ImportError, RuntimeError) as error:
        refuse(f"{error}; --no-check measures without training steps")


def _measure(device: torch.device, load: float) -> Calibration:
    """Measure a device; print what is found, and what makes it doubtful."""
    try:
        found = calibrate(device)
    except ValueError as error:
        refuse(error)
    print(found, flush=True)
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    for doubt in doubts(found.spread, load, threads):
        _warn(f"{doubt}; measure again when nothing else runs")
    return found


def _judge(rows: list[Prediction], force: bool) -> None:
    """Refuse presets by which training steps come out far off."""
    factor = median(max(row.factor, 1 / row.factor) for row in rows)
    if factor <= MOST_FACTOR:
        return
    facts = f"median factor: {factor:.2f}, at most: {MOST_FACTOR:g}"
    fact = f"simulated steps are far off ({facts})"
    if not force:
        refuse(
            f"{fact}, so nothing is written; measure again when nothing else "
            "runs, or write it by --force"
        )
    _warn(fact)


def _warn(message: str) -> None:
    print(f"{PROGRAM}: warning: {message}", file=sys.stderr, flush=True)
