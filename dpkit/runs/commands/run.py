"""``python -m dpkit run``: a script of one process, on simulated GPUs."""

import argparse

from dpkit.commands.parser import Commands, count_option
from dpkit.runs.commands.scripts import (
    add_machine,
    add_output,
    add_script,
    add_what_runs,
    idle_limit,
    run_and_report,
)

_SUMMARY = "run a script of python on simulated GPUs"


def add_run(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser(
        "run",
        help=_SUMMARY,
        description=(
            f"{_SUMMARY}: its values, time and memory; processes that the "
            "script starts by torch.multiprocessing are ranks, with a GPU each"
        ),
    )
    parser.add_argument(
        "--gpus",
        type=count_option,
        default=1,
        help="how many GPUs the script finds (default: 1)",
    )
    add_what_runs(parser)
    add_machine(parser)
    add_output(parser)
    add_script(parser)
    parser.set_defaults(command=run_alone)


def run_alone(options: argparse.Namespace, command: str) -> None:
    """Run a script in this process, and print what happened."""
    # Here, not above: it imports PyTorch's engines, which takes a while.
    from dpkit.runs.torchrun.launching import Settings
    from dpkit.runs.torchrun.one_process import run_in_one_process

    settings = Settings(
        steps=options.steps,
        races=options.races,
        has_real_time=options.real_time,
        idle_limit=idle_limit(options),
    )
    run_and_report(
        options,
        "run",
        {"num_devices": options.gpus, "hosts": "one"},
        lambda script: run_in_one_process(script, settings),
    )
