"""The book's command line: ``python -m dpbook train``."""

import sys
from collections.abc import Sequence

from dpbook.job.command import PROGRAM, add_train
from dpkit.commands.parser import Parser, make_parser, run_command

DESCRIPTION = "The training job of the book."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default that of this process; return its status."""
    return run_command(job_parser(), arguments)


def job_parser() -> Parser:
    """Return the parser of the one command."""
    return make_parser(PROGRAM, DESCRIPTION, (add_train,))


if __name__ == "__main__":
    sys.exit(main())
