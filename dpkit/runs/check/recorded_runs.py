"""Run a script on ranks, or on one, and keep what it does in each step."""

import os
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout

from dpkit.runs.check.kept import Keeping, Kept
from dpkit.runs.check.own_statistics import OwnStatistics
from dpkit.runs.check.played import (
    Tape,
    path_of_tape,
    play_loaders,
    record_loaders,
)
from dpkit.runs.check.same_parameters import ParametersOfSteps
from dpkit.runs.check.written_files import FilesPutBack
from dpkit.runs.cuda_names.patches import as_cuda
from dpkit.runs.forked.running import ForkedRank, run_forked
from dpkit.runs.torchrun.examples import OF_EXAMPLES
from dpkit.runs.torchrun.facts import RankCounter
from dpkit.runs.torchrun.failures import print_error
from dpkit.runs.torchrun.launching import (
    RankReport,
    Settings,
    do_in_rank,
    report_of_rank,
    tasks_of_torchrun,
)
from dpkit.runs.torchrun.new_groups import NewGroups
from dpkit.runs.torchrun.script import Script
from dpkit.runs.torchrun.shuffled import ShuffledParts
from dpkit.runs.torchrun.spawning import Task
from dpkit.runs.torchrun.watchers import WATCHERS


def kept_of_ranks(
    script: Script,
    ranks: int,
    steps: int,
    files: FilesPutBack,
    *,
    prints: bool = True,
) -> tuple[list[Kept], dict[int, RankReport]]:
    """Return what ranks keep of their steps, and what watchers have found.

    Args:
        script: What they run.
        ranks: How many there are.
        steps: After how many they end.
        files: Puts back what they write. Its folder gets what one rank is
            given: the batches of each rank, and the parameters after each
            step.
        prints: Whether it is shown what they print.

    Raises:
        RankError: a rank has failed, or none could go on.
    """
    tasks = tasks_of_torchrun(script, Settings(ranks_per_node=ranks))

    def run_rank(here: ForkedRank) -> tuple[Kept, RankReport]:
        parameters = ParametersOfSteps(files.folder, here.rank)
        keeping = Keeping(here.rank, parameters.write)
        kinds = *WATCHERS, *OF_EXAMPLES, ShuffledParts, NewGroups
        watchers = [make(here.rank) for make in kinds]
        watchers.append(files.watcher(here.rank))
        counting = RankCounter(here, steps, [*keeping.watchers, *watchers])
        with ExitStack() as stack:
            counting.begin(stack)
            tape = record_loaders(stack)
            if not prints:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(redirect_stdout(nowhere))
            (_do_or_print if prints else do_in_rank)(tasks[here.rank])
            tape.write(path_of_tape(files.folder, here.rank))
            return keeping.kept(), report_of_rank(counting, watchers)

    with files, as_cuda(real_time=True):
        found = run_forked(run_rank, ranks)
    return [kept for kept, _ in found], dict(
        enumerate(report for _, report in found)
    )


def kept_of_one(
    script: Script,
    *,
    steps: int,
    several: Sequence[Kept],
    files: FilesPutBack,
    tape: Tape | None,
    prints: bool,
) -> Kept:
    """Return what one rank keeps of its steps.

    Args:
        script: What it runs.
        steps: After how many it ends.
        several: What ranks have kept, whose examples it may have.
        files: Puts back what it writes. Its folder has the parameters of the
            ranks after each step.
        tape: What its loaders yield; None: what they do.
        prints: Whether the error that ends it is printed.

    Raises:
        RankError: it has failed, or could not go on.
    """
    (task,) = tasks_of_torchrun(script, Settings())

    def run_rank(here: ForkedRank) -> Kept:
        parameters = ParametersOfSteps(files.folder, here.rank)
        keeping = Keeping(here.rank, parameters.take)
        watchers = [
            *(*keeping.watchers, OwnStatistics(several)),
            files.watcher(here.rank),
        ]
        with ExitStack() as stack:
            RankCounter(here, steps, watchers).begin(stack)
            if tape is not None:
                play_loaders(stack, tape)
            (_do_or_print if prints else do_in_rank)(task)
            return keeping.kept()

    with files, as_cuda(real_time=True):
        (found,) = run_forked(run_rank, 1)
    kept: Kept = found
    return kept


def _do_or_print(task: Task) -> None:
    """Do the task of a rank; print the error that ends it."""
    try:
        do_in_rank(task)
    except Exception as error:
        print_error(error)
        raise
