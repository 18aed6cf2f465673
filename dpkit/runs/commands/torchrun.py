"""``python -m dpkit torchrun``: a script, unchanged, on simulated GPUs."""

import argparse

from dpkit.commands.parser import Commands, Parser, count_option, refuse
from dpkit.runs.commands.scripts import (
    add_machine,
    add_output,
    add_script,
    add_what_runs,
    idle_limit,
    run_and_report,
)

_SUMMARY = "run a script of torchrun on simulated GPUs"
# Options of torchrun by which nodes find each other: here they need not.
_OF_TORCHRUN = (
    *("--master_addr", "--master_port", "--node_rank", "--rdzv_backend"),
    *("--rdzv_endpoint", "--rdzv_id", "--max_restarts"),
)


def add_torchrun(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser(
        "torchrun",
        help=_SUMMARY,
        description=f"{_SUMMARY}: its values, time and memory",
    )
    _add_ranks(parser)
    add_what_runs(parser)
    add_machine(parser)
    parser.add_argument(
        "--network",
        default="infiniband400",
        help="between nodes: one of the links (default: %(default)s)",
    )
    add_output(parser)
    add_script(parser)
    parser.set_defaults(command=run_torchrun)


def _add_ranks(parser: Parser) -> None:
    """Add how many ranks there are, as torchrun has it."""
    add = parser.add_argument
    add("--nnodes", type=count_option, default=1, help="nodes (default: 1)")
    add(
        "--nproc-per-node",
        "--nproc_per_node",
        type=count_option,
        default=1,
        help="ranks on each node, with a GPU each (default: 1)",
    )
    add(
        "--own-gpu",
        action="store_true",
        help="each rank sees its own GPU alone, as cuda:0; so start launchers "
        "such as SLURM with --gpus-per-task=1",
    )
    add(
        "--alike",
        action="store_true",
        help="with --meta: run rank 0, which stands for all that do the same",
    )
    for name in _OF_TORCHRUN:
        add(name, name.replace("_", "-"), help=argparse.SUPPRESS)
    add("--standalone", action="store_true", help=argparse.SUPPRESS)


def run_torchrun(options: argparse.Namespace, command: str) -> None:
    """Run a script on ranks, and print what happened."""
    # Here, not above: it imports PyTorch's engines, which takes a while.
    from dpkit.runs.torchrun.launching import Settings, run_on_ranks

    settings = Settings(
        nodes=options.nnodes,
        ranks_per_node=options.nproc_per_node,
        alike=options.alike,
        steps=options.steps,
        races=options.races,
        has_real_time=options.real_time,
        sees_own=options.own_gpu,
        idle_limit=idle_limit(options),
    )
    if options.alike and not options.meta:
        refuse("--alike needs --meta: a rank with values is no other")
    machine = {
        "num_devices": options.nnodes * options.nproc_per_node,
        "network": options.network,
        "hosts": "per_device",
        "ranks_per_node": (
            options.nproc_per_node if options.nnodes > 1 else None
        ),
    }
    run_and_report(
        options,
        "torchrun",
        machine,
        lambda script: run_on_ranks(script, settings),
    )
