"""``python -m dpkit torchrun``: a script, unchanged, on simulated GPUs."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from dpkit import sim
from dpkit.commands.parser import (
    PROGRAM,
    Commands,
    Parser,
    refuse,
    refuse_missing_script,
)
from dpkit.theory.hardware import ACCELERATORS, HOSTS, LINKS

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
    _add_machine(parser)
    _add_output(parser)
    add = parser.add_argument
    add("-m", "--module", action="store_true", help="the script is a module")
    add("script", help="the script, or the module")
    add("arguments", nargs=argparse.REMAINDER, help="those of the script")
    parser.set_defaults(command=run_torchrun)


def _add_ranks(parser: Parser) -> None:
    """Add how many ranks there are, as torchrun has it, and what they do."""
    add = parser.add_argument
    add("--nnodes", type=int, default=1, help="nodes (default: 1)")
    add(
        "--nproc-per-node",
        "--nproc_per_node",
        type=int,
        default=1,
        help="ranks on each node, with a GPU each (default: 1)",
    )
    add(
        "--spawns",
        type=int,
        metavar="GPUS",
        help="the script starts its processes itself, on so many GPUs",
    )
    add("--steps", type=int, help="end after so many steps of the optimizer")
    add("--meta", action="store_true", help="memory and time without values")
    add(
        "--alike",
        action="store_true",
        help="with --meta: run rank 0, which stands for all that do the same",
    )
    add(
        "--races",
        action="store_true",
        help="find uses of one memory that nothing orders (it takes longer)",
    )
    add(
        "--real-time",
        action="store_true",
        help="time.time() and the like are those on the wall",
    )
    for name in _OF_TORCHRUN:
        add(name, name.replace("_", "-"), help=argparse.SUPPRESS)
    add("--standalone", action="store_true", help=argparse.SUPPRESS)


def _add_machine(parser: Parser) -> None:
    """Add what is simulated."""
    add = parser.add_argument
    add(
        "--accelerator",
        default="h100",
        help=f"{', '.join(ACCELERATORS)} or a file (default: %(default)s)",
    )
    add(
        "--link",
        default="nvlink4",
        help=f"inside a node: {', '.join(LINKS)} (default: %(default)s)",
    )
    add(
        "--network",
        default="infiniband400",
        help="between nodes: one of the links (default: %(default)s)",
    )
    add(
        "--host",
        default="eager-fast",
        help=f"{', '.join(HOSTS)} (default: %(default)s)",
    )
    add(
        "--memory",
        type=float,
        metavar="GIGABYTES",
        help="of each GPU (default: the accelerator's)",
    )


def _add_output(parser: Parser) -> None:
    """Add what is written, besides the report in the terminal."""
    add = parser.add_argument
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="write the report as a page of HTML",
    )
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write the timeline of the run, for ui.perfetto.dev",
    )


def run_torchrun(options: argparse.Namespace, command: str) -> None:
    """Run a script, and print what happened."""
    # Here, not above: they import PyTorch's engines, which takes a while.
    from dpkit.torchrun.launching import Settings, run_on_ranks
    from dpkit.torchrun.page import write_page
    from dpkit.torchrun.report import report
    from dpkit.torchrun.script import Script

    settings = Settings(
        nodes=options.nnodes,
        ranks_per_node=options.nproc_per_node,
        alike=options.alike,
        spawns=options.spawns is not None,
        steps=options.steps,
        races=options.races,
        has_real_time=options.real_time,
    )
    if options.alike and not options.meta:
        refuse("--alike needs --meta: a rank with values is no other")
    refuse_missing_script(options)
    for path in (options.report, options.trace):
        if path is not None and not path.resolve().parent.is_dir():
            refuse(f"there is no folder for it (path: {path})")
    signal.signal(signal.SIGTERM, _raise_interrupt)
    _configure(options)
    _print(f"the GPUs are {sim.label()}")
    script = Script(options.script, tuple(options.arguments), options.module)
    try:
        done = run_on_ranks(script, settings)
    except KeyboardInterrupt:
        _print("interrupted; all ranks have ended")
        raise SystemExit(128 + signal.SIGINT) from None
    for section in report(done):
        print(f"\n{section}", flush=True)
    if options.report is not None:
        what = " ".join([options.script, *options.arguments])
        write_page(done, options.report, what)
    if options.trace:
        done.timeline.to_chrome(options.trace)
    if done.failure is not None:
        _print(str(done.failure))
        for note in getattr(done.failure, "__notes__", []):
            _print(note)
        raise SystemExit(1)


def _configure(options: argparse.Namespace) -> None:
    """Choose the machine that is simulated."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the GPUs of this machine rest
    size = options.spawns or options.nnodes * options.nproc_per_node
    try:
        sim.register()
        sim.configure(
            num_devices=size,
            accelerator=options.accelerator,
            link=options.link,
            network=options.network,
            host=options.host,
            hosts="per_device",
            backing="meta" if options.meta else "cpu",
            memory_bytes=options.memory and round(1e9 * options.memory),
            ranks_per_node=(
                options.nproc_per_node if options.nnodes > 1 else None
            ),
        )
    except (RuntimeError, ValueError, OSError) as error:
        refuse(error)


def _raise_interrupt(*_: object) -> NoReturn:
    """End as by Ctrl-C, so that no rank is left."""
    raise KeyboardInterrupt


def _print(line: str) -> None:
    print(f"{PROGRAM} torchrun: {line}", file=sys.stderr, flush=True)
