"""What the commands share: a parser, and how to refuse."""

import argparse
import os
import sys
import time
from typing import NoReturn, TypeAlias

PROGRAM = "python -m dpkit"
KILLED_WITHIN_SECONDS = 30


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        refuse(f"{message}; {self.prog} --help tells more")


# What Parser.add_subparsers() returns; the name is argparse's own.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def refuse(message: object) -> NoReturn:
    """Print why a command cannot be done, as one line, and end."""
    # One process of a host prints; then torchrun kills those that wait here.
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(KILLED_WITHIN_SECONDS)
        raise SystemExit(2)
    line = " ".join(str(message).split())
    print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True)
    raise SystemExit(2)
