"""The command line: ``python -m dpkit devices``, ``step``, ``run``, ….

``devices``, ``step`` and ``calibrate`` are in ``commands/``, a file for each;
``run``, ``torchrun`` and ``check`` in ``runs/commands/``.
"""

import sys
from collections.abc import Sequence

from dpkit.commands.calibrate import add_calibrate
from dpkit.commands.devices import add_devices
from dpkit.commands.parser import PROGRAM, Parser, make_parser, run_command
from dpkit.commands.step import add_step
from dpkit.runs.commands.check import add_check
from dpkit.runs.commands.run import add_run
from dpkit.runs.commands.torchrun import add_torchrun

DESCRIPTION = "Training neural networks on many devices."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default that of this process; return its status."""
    return run_command(command_parser(), arguments)


def command_parser() -> Parser:
    """Return the parser of all commands."""
    adders = (
        add_devices,
        add_step,
        add_run,
        add_torchrun,
        add_check,
        add_calibrate,
    )
    return make_parser(PROGRAM, DESCRIPTION, adders)


if __name__ == "__main__":
    sys.exit(main())
