"""What the commands share: a parser, how to run one, how to refuse."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

import dpkit

PROGRAM = "python -m dpkit"
KILLED_WITHIN_SECONDS = 30


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        program = " ".join(self.prog.split()[:3])  # without the command
        refuse(f"{message}; {self.prog} --help tells more", program)


# What Parser.add_subparsers() returns; the name is argparse's own.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def make_parser(
    program: str,
    description: str,
    adders: Iterable[Callable[[Commands], None]],
) -> Parser:
    """Return the parser of a program with several commands.

    Args:
        program: How it is called, such as "python -m dpkit".
        description: What ``--help`` says of it.
        adders: Functions that add one command each.
    """
    parser = Parser(prog=program, description=description)
    parser.add_argument(
        "--version", action="version", version=f"dpkit {dpkit.__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in adders:
        add(commands)
    return parser


def run_command(parser: Parser, arguments: Sequence[str] | None) -> int:
    """Run the command in the arguments, by default those of this process.

    Returns:
        The exit status, 0.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(words)
    options.command(options, " ".join([parser.prog, *words]))
    return 0


def count_option(text: str) -> int:
    """Return an option's whole number from 1 up; argparse names others."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"not a count from 1 up ({text!r})")
    return number


def refuse_output(option: str, path: Path) -> None:
    """Refuse a file that could not be written, before hours are spent.

    What the file holds stays, until there is something to write.

    Args:
        option: The option that names the file, such as "--report".
        path: The file, which may not be there yet.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        refuse(f"cannot write ({option}: '{path}'): it is no regular file")
    if not path.parent.exists():
        refuse(f"cannot write ({option}: '{path}'): there is no folder for it")
    try:
        if path.exists():
            path.open("a").close()
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(4096))  # a full disk has no place for them
    except OSError as error:
        refuse(f"cannot write ({option}: '{path}'): {error.strerror}")


def refuse_missing_script(options: argparse.Namespace) -> None:
    """Refuse a script that is no file, before ranks are made for it."""
    if not options.module and not os.path.isfile(options.script):
        refuse(f"there is no such script (file: {options.script})")


def refuse(message: object, program: str = PROGRAM) -> NoReturn:
    """Print why a command cannot be done, as one line, and end."""
    # One process of a host prints; then torchrun kills those that wait here.
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(KILLED_WITHIN_SECONDS)
        raise SystemExit(2)
    line = " ".join(str(message).split())
    print(f"{program}: {line}", file=sys.stderr, flush=True)
    raise SystemExit(2)
