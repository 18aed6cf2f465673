"""``python -m dpbook train``: one process, or as many as torchrun starts."""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from dpbook.common.datasets import load_fashion_mnist
from dpbook.job.checkpoints import Checkpoints
from dpbook.job.ranks import Ranks, brief, is_of_others, join_job
from dpbook.job.resume import resume, train_to
from dpbook.job.run import MODELS, Run, Settings
from dpkit.commands.parser import Commands, refuse

PROGRAM = "python -m dpbook"
INTERRUPTED = 130  # as a shell reports Ctrl-C
SUMMARY = "train on Fashion-MNIST, in one process or under torchrun"
DESCRIPTION = f"""\
{SUMMARY}

Except for rounding, which grows with the steps, the parameters do not depend
on the number of processes. On the same number of processes they are equal to
the bit, also if the run was killed and started again in between.
"""
EXAMPLES = """\
one process:     python -m dpbook train
four processes:  torchrun --nproc-per-node 4 -m dpbook train
two hosts:       torchrun --nnodes 2 --node-rank 0 --nproc-per-node 4
                   --master-addr FIRST-HOST --master-port 29400
                   -m dpbook train     (and with --node-rank 1 on the other)
killed, Ctrl-C:  with --checkpoint FOLDER, type the same line again
"""


def _number(
    kind: Callable[[str], float], least: float, most: float, what: str
) -> Callable[[str], float]:
    """Return what reads a number of an option, or refuses it."""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"not {what} ({text!r})")
        return number

    return read


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"not a folder ({text!r})")
    return Path(text)


COUNT = _number(int, 1, math.inf, "a count from 1 up")
AMOUNT = _number(float, 0, sys.float_info.max, "a number from 0 up")
SECONDS = _number(float, 1e-9, 86400, "a number above 0, at most a day")


def add_train(commands: Commands) -> None:
    """Add the command to the parser of all."""
    train = commands.add_parser(
        "train",
        help=SUMMARY,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    start = Settings()
    add = train.add_argument
    add("--model", choices=list(MODELS), default=start.model)
    add("--data", choices=["sample", "full"], default=start.data)

    def number(
        name: str, kind: Callable[[str], float], default: float, what: str
    ) -> None:
        text = f"{what} (default: %(default)s)"
        add(name, type=kind, metavar="N", default=default, help=text)

    number("--batch-size", COUNT, start.batch_size, "of all processes")
    number("--lr", AMOUNT, start.lr, "the learning rate")
    number("--momentum", AMOUNT, start.momentum, "of SGD")
    number("--seed", int, start.seed, "of parameters and shuffling")
    number("--epochs", COUNT, 10, "how often to go through the data")
    number("--checkpoint-every", COUNT, 100, "steps from one to the next")
    number("--keep", COUNT, 3, "how many checkpoints to keep")
    number("--timeout", SECONDS, 60.0, "seconds to wait for a silent process")
    add("--max-steps", type=COUNT, metavar="N", help="stop after so many")
    add(
        "--checkpoint",
        type=_folder,
        metavar="FOLDER",
        help="save there, and resume from what is there; only the first "
        "process reads and writes",
    )
    train.set_defaults(command=train_job)


def train_job(options: argparse.Namespace, command: str) -> None:
    """Train as the options say, on all ranks; rank 0 prints the results."""
    given = vars(options)
    settings = Settings(**{name: given[name] for name in asdict(Settings())})
    try:
        ranks = join_job(options.timeout)
    except ValueError as error:
        refuse(error, PROGRAM)
    except ConnectionError as error:
        _end(str(error))
    with ranks:
        ranks.watch(partial(_stop, ranks, why="others have stopped"))
        try:
            _train(settings, options, ranks)
            ranks.finish()
        except OSError as error:
            if error.filename is None:
                raise
            facts = f"why: {error.strerror}, file: {error.filename}"
            me = ranks.names([ranks.rank])
            _end(f"{me} stops: a file cannot be read or written ({facts})")
        except FloatingPointError as error:
            _end(f"{ranks.names([ranks.rank])} stops: {error}")
        except RuntimeError as error:
            lost = ranks.lost() if is_of_others(error) else []
            if not lost:
                raise
            _stop(ranks, lost, brief(error))


def _train(
    settings: Settings, options: argparse.Namespace, ranks: Ranks
) -> None:
    """Go on from what is there, train to the end, and test."""
    train_set, test_set = load_fashion_mnist(full=settings.data == "full")
    run = Run(settings, train_set, ranks)
    num_steps = options.epochs * run.steps_per_epoch
    num_steps = min(num_steps, options.max_steps or num_steps)

    def tell(line: str) -> None:
        if ranks.rank == 0:
            print(line, flush=True)

    tell(
        f"{settings.model} on {ranks.world_size} x {ranks.device.type} "
        f"({dist.get_backend()}): {num_steps} steps of {settings.batch_size}"
    )
    if ranks.why_cpu:
        tell(f"the CPU computes, because {ranks.why_cpu}")
    checkpoints = None
    if folder := options.checkpoint:
        checkpoints = Checkpoints(folder, asdict(settings), options.keep)
        try:
            for line in resume(run, checkpoints):
                tell(line)
        except ValueError as error:
            refuse(error, PROGRAM)
    if run.step > num_steps:
        facts = f"steps taken: {run.step}, asked for: {num_steps}"
        refuse(
            f"the run has come further than is asked for ({facts})", PROGRAM
        )
    start = time.monotonic()
    first = run.step
    try:
        train_to(run, num_steps, checkpoints, options.checkpoint_every)
    except KeyboardInterrupt:
        advice = _how_to_go_on(run, checkpoints) if ranks.rank == 0 else ""
        _end(advice, status=INTERRUPTED)
    seconds = time.monotonic() - start
    tell(f"{num_steps - first} steps in {seconds:.1f} s")
    correct = run.count_correct(test_set)
    num_tested = len(test_set.labels)
    tell(f"test accuracy {correct / num_tested:.4f} ({correct}/{num_tested})")
    run.check_alike()
    tell(f"sha256 of the parameters {run.digest()}")


def _stop(ranks: Ranks, lost: list[int], why: str) -> NoReturn:
    """Print which ranks are lost, and end this one."""
    me = ranks.names([ranks.rank])
    others = ranks.names(lost)
    _end(f"{me} stops: no answer from {others} (why: {why})")


def _how_to_go_on(run: Run, checkpoints: Checkpoints | None) -> str:
    """Return what Ctrl-C leaves, and how the run goes on from there."""
    stopped = f"stopped by Ctrl-C after step {run.step}"
    if checkpoints is None:
        return (
            f"{stopped}, and nothing was saved; with --checkpoint FOLDER "
            "a run that is stopped can go on"
        )
    saved = checkpoints.newest(run.check).path
    if saved is None:
        return f"{stopped}, before the first checkpoint"
    return f"{stopped}; the same line again goes on from {saved}"


def _end(message: str, status: int = 1) -> NoReturn:
    """Print why this rank ends; end without waiting for lost ranks."""
    sys.stdout.flush()
    if message:
        print(f"{PROGRAM}: {message}", file=sys.stderr, flush=True)
    os._exit(status)
