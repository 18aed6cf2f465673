"""What ``run`` and ``torchrun`` share: the machine, the script, the report."""

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpkit import sim
from dpkit.commands.parser import (
    PROGRAM,
    Parser,
    count_option,
    refuse,
    refuse_missing_script,
    refuse_output,
)
from dpkit.runs.forked.signals import raise_end_signal, signal_of
from dpkit.runs.ranks.watching import LIMIT, limit_of
from dpkit.sim.hardware import ACCELERATORS, HOSTS, LINKS

if TYPE_CHECKING:
    from dpkit.runs.torchrun.launching import Run
    from dpkit.runs.torchrun.script import Script


def add_what_runs(parser: Parser) -> None:
    """Add how the script runs, and how long."""
    add = parser.add_argument
    add(
        "--steps",
        type=count_option,
        help="end after so many steps of the optimizer",
    )
    add("--meta", action="store_true", help="memory and time without values")
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
    add(
        "--idle-limit",
        type=float,
        metavar="SECONDS",
        help="end when no rank, nor the script that starts ranks, has done "
        f"anything for so long (default: never; or the variable {LIMIT})",
    )


def idle_limit(options: argparse.Namespace) -> float:
    """Return after how many seconds without work ranks end; else refuse."""
    try:
        return limit_of(options.idle_limit)
    except ValueError as error:
        refuse(error)


def add_machine(parser: Parser) -> None:
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
        "--host",
        default="eager-program",
        help=f"{', '.join(HOSTS)} (default: %(default)s)",
    )
    add(
        "--memory",
        type=_gigabytes,
        metavar="GIGABYTES",
        help="of each GPU (default: the accelerator's)",
    )


def add_output(parser: Parser) -> None:
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


def add_script(parser: Parser) -> None:
    """Add the script, and what it is given."""
    add = parser.add_argument
    add("-m", "--module", action="store_true", help="the script is a module")
    add("script", help="the script, or the module")
    add("arguments", nargs=argparse.REMAINDER, help="those of the script")


def run_and_report(
    options: argparse.Namespace,
    name: str,
    machine: dict[str, Any],
    run: "Callable[[Script], Run]",
) -> None:
    """Run a script, and print what happened.

    Args:
        options: Those of the command line.
        name: The name of the command.
        machine: What the command itself says of the machine.
        run: What runs the script.
    """
    # Here, not above: they import PyTorch's engines, which takes a while.
    from dpkit.runs.torchrun.report import failed, report
    from dpkit.runs.torchrun.script import Script

    refuse_missing_script(options)
    for option, path in (
        ("--report", options.report),
        ("--trace", options.trace),
    ):
        if path is not None:
            refuse_output(option, path)
    _configure(options, machine)
    signal.signal(signal.SIGTERM, raise_end_signal)
    time = "" if options.real_time else ", and so is the script's time"
    _print(name, f"the GPUs are {sim.label()}{time}")
    script = Script(options.script, tuple(options.arguments), options.module)
    try:
        done = run(script)
    except KeyboardInterrupt as error:
        _print(name, "interrupted; all that was started has ended")
        raise SystemExit(128 + signal_of(error)) from None
    for section in report(done):
        print(f"\n{section}", flush=True)
    _write_files(options, name, done)
    failure = failed(done)
    if failure is not None:
        print("", *failure.tracebacks, sep="\n", file=sys.stderr)
        _print(name, failure.message)
        for note in failure.notes:
            print(f"  {note}", file=sys.stderr)
        for line in failure.lines:
            _print(name, line)
        raise SystemExit(1)


def _write_files(options: argparse.Namespace, name: str, done: "Run") -> None:
    """Write what the options ask for, besides the report in the terminal."""
    from dpkit.runs.torchrun.html_report import write_page

    try:
        if options.report is not None:
            what = " ".join([options.script, *options.arguments])
            write_page(done, options.report, what)
        if options.trace is not None:
            done.timeline.to_chrome(options.trace)
    except OSError as error:  # the disk has become full meanwhile, perhaps
        _print(name, f"a file could not be written: {error}")
        raise SystemExit(1) from None


def _gigabytes(text: str) -> float:
    """Return an option's gigabytes; argparse names what cannot be."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # From a byte to an exabyte, more than any GPU has.
    if not 1e-9 <= number <= 1e9:
        raise argparse.ArgumentTypeError(
            f"not a number of gigabytes above 0, at most 1e9 ({text!r})"
        )
    return number


def _configure(options: argparse.Namespace, machine: dict[str, Any]) -> None:
    """Choose the machine that is simulated."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the GPUs of this machine rest
    try:
        sim.register()
        sim.configure(
            accelerator=options.accelerator,
            link=options.link,
            host=options.host,
            backing="meta" if options.meta else "cpu",
            memory_bytes=options.memory and round(1e9 * options.memory),
            **machine,
        )
    except (RuntimeError, ValueError, OSError) as error:
        refuse(error)


def _print(name: str, line: str) -> None:
    print(f"{PROGRAM} {name}: {line}", file=sys.stderr, flush=True)
