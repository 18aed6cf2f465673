"""The command line: ``python -m dpkit devices`` and ``… calibrate``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from dpkit import calibration, sim
from dpkit.lab.predictions import CASES, predictions, table
from dpkit.machine import devices
from dpkit.sim.configuration import simulation
from dpkit.theory.preset_files import save
from dpkit.theory.units import show_memory

PROGRAM = "python -m dpkit"
GPU = torch.device("cuda:0")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """End the program."""
        refuse(f"{message}; {self.prog} --help tells more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: What follows ``python -m dpkit``; None: what did.

    Returns:
        The exit status.

    Raises:
        SystemExit: an argument is wrong, or the command cannot be done; or
            help was asked for.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    command: Callable[[argparse.Namespace, str], None] = options.command
    command(options, " ".join([PROGRAM, *words]))
    return 0


def refuse(message: object) -> NoReturn:
    """Print why a command cannot be done, as one line, and end."""
    line = " ".join(str(message).split())
    print(f"{PROGRAM}: {line}", file=sys.stderr)
    raise SystemExit(2)


def _parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Training neural networks on many devices.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    shown = "tell what this machine has, and what would be used"
    show = commands.add_parser("devices", help=shown, description=shown)
    show.set_defaults(command=show_devices)
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
    return parser


# -- devices


def show_devices(options: argparse.Namespace, command: str) -> None:
    """Print what this machine has, and what would be used."""
    used = {f"dpkit.devices({k})": _used(k) for k in (1, 2, 8)}
    rows = {
        "torch": torch.__version__,
        "CPU": f"{calibration.cpu_name()}, {torch.get_num_threads()} threads",
        "GPUs": "; ".join(_gpus()) or "none",
        "simulated": _simulated(),
        "DPKIT_DEVICES": os.environ.get("DPKIT_DEVICES") or "not set",
        **used,
    }
    for name, value in rows.items():
        print(f"{name:<16} {value}")


def _gpus() -> list[str]:
    """Return a line for each GPU."""
    module = torch.get_device_module(GPU)
    found = [torch.device(GPU.type, i) for i in range(module.device_count())]
    return [
        f"{device} {calibration.device_name(device)}, "
        f"{show_memory(calibration.memory_bytes(device))}"
        for device in found
    ]


def _simulated() -> str:
    """Return what is simulated, or why nothing can be."""
    try:
        sim.register()
    except RuntimeError as error:
        return f"none: {error}"
    return (
        f"{simulation.settings['num_devices']} × "
        f"{simulation.clock.cluster.name}, "
        f"{show_memory(simulation.memory.capacity)} each, numbers on "
        f"{simulation.backing}"
    )


def _used(count: int) -> str:
    """Return what ``dpkit.devices(count)`` gives, or why it gives nothing."""
    try:
        return ", ".join(map(str, devices(count)))
    except (RuntimeError, ValueError) as error:
        return f"none: {error}"


# -- calibrate


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
    if device.type not in ("cpu", GPU.type):
        refuse(f"not a CPU or GPU (--device: {name!r}); say cpu or {GPU}")
    if device.type == "cpu":
        return torch.device("cpu")
    count = torch.get_device_module(GPU).device_count()
    if (device.index or 0) >= count:
        refuse(f"there is no such GPU (--device: {name!r}, GPUs: {count})")
    return torch.device(device.type, device.index or 0)


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


if __name__ == "__main__":
    sys.exit(main())
