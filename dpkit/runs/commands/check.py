"""``python -m dpkit check``: one rank of a script against several."""

import argparse
import os
import shlex

from dpkit import sim
from dpkit.commands.parser import (
    Commands,
    count_option,
    refuse,
    refuse_missing_script,
)

_SUMMARY = "compare one rank of a script with several"


def add_check(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser(
        "check",
        help=_SUMMARY,
        description=f"{_SUMMARY}, which are to have the same global batch: "
        "the gradients and the parameters of each step",
    )
    add = parser.add_argument
    add(
        "--ranks",
        type=count_option,
        default=2,
        help="how many (default: %(default)s)",
    )
    add(
        "--steps",
        type=count_option,
        default=2,
        help="of the optimizer (default: %(default)s)",
    )
    add(
        "--one",
        default="",
        metavar="ARGUMENTS",
        help="what one rank is given besides, such as '--batch-size 32'",
    )
    add("-m", "--module", action="store_true", help="the script is a module")
    add("script", help="the script, or the module")
    add("arguments", nargs=argparse.REMAINDER, help="those of the script")
    parser.set_defaults(command=check_script)


def check_script(options: argparse.Namespace, command: str) -> None:
    """Run a script on several ranks and on one; print what differs."""
    # Here, not above: they import PyTorch's engines, which takes a while.
    from dpkit.runs.check.checking import compare_ranks
    from dpkit.runs.torchrun.script import Script

    if options.ranks < 2:
        refuse(f"there is nothing to compare (--ranks: {options.ranks})")
    refuse_missing_script(options)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the GPUs of this machine rest
    sim.register()
    try:
        sim.configure(num_devices=options.ranks)
    except ValueError as error:
        refuse(error)
    script = Script(options.script, tuple(options.arguments), options.module)
    try:
        more = shlex.split(options.one)
    except ValueError as error:
        refuse(f"{error} (--one: {options.one!r})")
    of_one = script._replace(arguments=(*script.arguments, *more))
    try:
        verdict = compare_ranks(
            script, of_one if more else None, options.ranks, options.steps
        )
    except RuntimeError as error:
        for note in getattr(error, "__notes__", []):
            print(note)
        refuse(f"{options.ranks} ranks: {error}")
    for line in (*verdict.alarms, *verdict.said):
        print(line)
    if verdict.alarms:
        raise SystemExit(1)
