"""The command line: ``python -m dpkit devices``, ``step``, ``train``, ….

``commands/`` has a file for each command.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from dpkit.commands.calibrate import add_calibrate
from dpkit.commands.devices import add_devices
from dpkit.commands.parser import PROGRAM, Parser
from dpkit.commands.step import add_step
from dpkit.commands.train import add_train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default that of this process; return its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    command: Callable[[argparse.Namespace, str], None] = options.command
    command(options, " ".join([PROGRAM, *words]))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM, description="Training neural networks on many devices."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in (add_devices, add_step, add_calibrate, add_train):
        add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
