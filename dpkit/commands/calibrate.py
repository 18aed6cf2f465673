"""``python -m dpkit calibrate``: this machine, measured as a preset."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dpkit import calibration, sim
from dpkit.accelerator import real_devices
from dpkit.commands.parser import Commands, refuse
from dpkit.lab.predictions import CASES, predictions, table
from dpkit.theory.preset_files import save


def add_calibrate(commands: Commands) -> None:
    """Add the command to the parser of all."""
    measured = "measure this machine, as a preset to simulate"
    measure = commands.add_parser(
        "calibrate",
        help=measured,
        description=f"{measured}: by microbenchmarks, in about a minute; then "
        "hold simulated training steps against measured ones",
    )
    measure.add_argument(
        "--device",
        default="cpu",
        help="what to measure: cpu (the default), or a GPU such as cuda:0",
    )
    measure.add_argument(
        "--output",
        default="this-machine.json",
        type=Path,
        help="the file to write (default: %(default)s)",
    )
    measure.add_argument(
        "--no-check",
        dest="check",
        action="store_false",
        help="measure no training steps",
    )
    measure.set_defaults(command=calibrate)


def calibrate(options: argparse.Namespace, command: str) -> None:
    """Measure this machine; write presets, and how far off they are."""
    device = _device(options.device)
    _check_output(options.output)
    if options.check:
        _check_simulation()
    try:
        found = calibration.calibrate(device)
    except ValueError as error:
        refuse(error)
    facts = calibration.provenance(command, device)
    facts["times"] = found.times
    path = _save(options.output, found, facts)
    print(found)
    if options.check:
        rows = predictions(found.accelerator, found.host, found.link, device)
        facts["check"] = [asdict(row) for row in rows]
        path = _save(path, found, facts)
        print(f"\nTraining steps that it has not seen, on {device}:\n")
        print(table(rows))
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
    gpus, index = real_devices(), device.index or 0
    if index >= len(gpus):
        refuse(f"there is no such GPU (--device: {name!r}, GPUs: {len(gpus)})")
    return gpus[index]  # only on CUDA


def _check_output(path: Path) -> None:
    """Refuse a file that could not be written, or not be loaded."""
    if path.suffix != ".json":
        refuse(f"the name must end in .json (--output: '{path}')")
    try:
        if path.exists():
            path.open("a").close()
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        refuse(f"cannot write (--output: '{path}'): {error.strerror}")


def _check_simulation() -> None:
    """Refuse if training steps could not be simulated."""
    try:
        sim.register()
        for case in CASES:
            case.make()
    except (ImportError, RuntimeError) as error:
        refuse(f"{error}; --no-check measures without training steps")


def _save(
    path: Path, found: calibration.Calibration, facts: dict[str, Any]
) -> Path:
    """Write what was found, elsewhere if need be; return where."""
    write = partial(
        save,
        accelerator=found.accelerator,
        host=found.host,
        link=found.link,
        provenance=facts,
    )
    try:
        write(path)
    except OSError as error:
        spare = Path(tempfile.mkdtemp()) / path.name
        write(spare)
        print(f"cannot write '{path}': {error.strerror}", file=sys.stderr)
        return spare
    return path
