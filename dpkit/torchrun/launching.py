"""Run a script on the ranks of a simulated machine, and record what happens.

Each rank runs the script, as by torchrun.
"""

import atexit
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dpkit.forked.proxy import Arrivals
from dpkit.forked.running import ForkedRank, RankError, run_forked
from dpkit.sim.cuda_names import not_modelled
from dpkit.sim.cuda_names.patches import as_cuda
from dpkit.sim.cuda_names.stopwatch import show_simulated_time
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.devices.names import set_device
from dpkit.sim.tracing import trace
from dpkit.theory.timeline.timeline import Timeline
from dpkit.torchrun.facts import EnoughSteps, RankCounter, RankFacts
from dpkit.torchrun.held import HeldMemory
from dpkit.torchrun.kept import Keeping, Kept
from dpkit.torchrun.made_up import make_up_values
from dpkit.torchrun.own_statistics import OwnStatistics
from dpkit.torchrun.played import (
    Tape,
    path_of_tape,
    play_loaders,
    record_loaders,
)
from dpkit.torchrun.races import NothingOrders
from dpkit.torchrun.same_parameters import ParametersOfSteps
from dpkit.torchrun.script import RankPlace, Script, print_error, run_script
from dpkit.torchrun.spawning import Task
from dpkit.torchrun.watchers import WATCHERS, Watcher

_BACKWARD_BEFORE = (
    "ranks of a simulated machine are forked, and cannot go backward where "
    "the script has done so before it starts them; let it do that in a rank"
)


class Settings(NamedTuple):
    """How a script is run."""

    nodes: int = 1
    ranks_per_node: int = 1
    alike: bool = False  # whether rank 0 stands for all
    steps: int | None = None  # of the optimizer, after which it ends
    races: bool = False  # whether uses are found that nothing orders
    has_real_time: bool = False  # whether it sees the time on the wall


class RankReport(NamedTuple):
    """What the process of a rank sends at its end."""

    facts: RankFacts
    notes: dict[str, str]  # what was done otherwise -> the line
    findings: dict[str, str]  # what the watchers have found -> the line
    kept: dict[str, list[int]]  # what is found if it is equal on all ranks


@dataclass
class Run:
    """What a run of a script has left."""

    timeline: Timeline
    # By the number of the rank; where one process drives all devices, by that
    # of the device.
    ranks: list[RankReport | None] = field(default_factory=list)
    is_one_process: bool = False
    arrivals: Arrivals = field(default_factory=dict)
    failure: RankError | None = None


def run_on_ranks(script: Script, settings: Settings) -> Run:
    """Run a script, and return what was recorded.

    The machine has been configured, with a device for each rank.
    """
    with trace() as timeline:
        done = Run(timeline)
        try:
            with as_cuda(real_time=True):
                do_tasks(done, _tasks_of_torchrun(script, settings), settings)
        except RankError as failure:
            done.failure = failure
            done.ranks = [one.value for one in failure.outcomes]
    return done


def do_tasks(done: Run, tasks: Sequence[Task], settings: Settings) -> None:
    """Do tasks on ranks, one on each; note what they report.

    Raises:
        RankError: one has failed.
    """
    done.ranks = run_forked(
        lambda here: _run_rank(tasks[here.rank], settings, here),
        len(tasks),
        arrivals=done.arrivals,
        alike=settings.alike,
    )


def _tasks_of_torchrun(script: Script, settings: Settings) -> list[Task]:
    """Return what each rank does: it runs the script."""
    size = settings.nodes * settings.ranks_per_node

    def run_at(place: RankPlace) -> None:
        os.environ.update(place.environment())
        run_script(script)

    return [
        partial(run_at, RankPlace(rank, size, settings.ranks_per_node))
        for rank in range(size)
    ]


def _run_rank(task: Task, settings: Settings, here: ForkedRank) -> RankReport:
    """Do the task of a rank, in its process, and count what it does."""
    watchers = [make(here.rank) for make in WATCHERS]
    if settings.races:
        watchers.append(NothingOrders(here.rank))
    counting = RankCounter(here, settings.steps, watchers)
    with ExitStack() as stack:
        if not settings.has_real_time:
            show_simulated_time(stack)
        if simulation.backing.type == "meta":
            make_up_values(stack)
        counting.begin(stack)
        HeldMemory().begin(stack)
        _do(task, watchers)
        findings, kept = _ended(watchers)
        notes = not_modelled.notes
        return RankReport(counting.facts(), notes, findings, kept)


def _ended(
    watchers: Sequence[Watcher],
) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Return what watchers have found in the end, and what they have kept."""
    findings: dict[str, str] = {}
    kept: dict[str, list[int]] = {}
    for watcher in watchers:
        watcher.end()
        findings |= watcher.findings
        kept |= watcher.kept()
    return findings, kept


def _do(task: Task, watchers: Sequence[Watcher]) -> None:
    """Do the task of a rank, to its ``atexit``; print what it ends by.

    An error has notes that say what the watchers had found before.
    """
    atexit._clear()  # those of the parent
    # As on CUDA, a process begins on the first GPU of its node.
    set_device(simulation.first_device)
    try:
        task()
    except EnoughSteps:
        pass
    except Exception as error:
        _explain(error, watchers)
        print_error(error)
        atexit._run_exitfuncs()
        raise
    atexit._run_exitfuncs()


def _explain(error: Exception, watchers: Sequence[Watcher]) -> None:
    """Add notes to the error that ends a rank."""
    if "fork-based multiprocessing" in str(error):
        error.add_note(_BACKWARD_BEFORE)
    for watcher in watchers:
        for sentence, line in watcher.findings.items():
            error.add_note(f"found before: {sentence} ({line})")


def kept_of_ranks(
    script: Script, ranks: int, steps: int, folder: Path
) -> tuple[list[Kept], dict[int, RankReport]]:
    """Return what ranks keep of their steps, and what watchers have found.

    Args:
        script: What they run.
        ranks: How many there are.
        steps: After how many they end.
        folder: It gets what one rank is given: the batches of each rank, and
            the parameters after each step.

    Raises:
        RankError: a rank has failed, or none could go on.
    """
    tasks = _tasks_of_torchrun(script, Settings(ranks_per_node=ranks))

    def run_rank(here: ForkedRank) -> tuple[Kept, RankReport]:
        parameters = ParametersOfSteps(folder, here.rank)
        keeping = Keeping(here.rank, parameters.write)
        watchers = [make(here.rank) for make in WATCHERS]
        counting = RankCounter(here, steps, [*keeping.watchers, *watchers])
        with ExitStack() as stack:
            counting.begin(stack)
            tape = record_loaders(stack)
            _do(tasks[here.rank], watchers)
            tape.write(path_of_tape(folder, here.rank))
            findings, kept = _ended(watchers)
            report = RankReport(counting.facts(), {}, findings, kept)
            return keeping.kept(), report

    with as_cuda(real_time=True):
        found = run_forked(run_rank, ranks)
    return [kept for kept, _ in found], dict(
        enumerate(report for _, report in found)
    )


def kept_of_one(
    script: Script,
    steps: int,
    several: Sequence[Kept],
    folder: Path,
    tape: Tape | None,
) -> Kept:
    """Return what one rank keeps of its steps.

    Args:
        script: What it runs.
        steps: After how many it ends.
        several: What ranks have kept, whose examples it may have.
        folder: It has the parameters of the ranks after each step.
        tape: What its loaders yield; None: what they do.

    Raises:
        RankError: it has failed, or could not go on.
    """
    (task,) = _tasks_of_torchrun(script, Settings())

    def run_rank(here: ForkedRank) -> Kept:
        parameters = ParametersOfSteps(folder, here.rank)
        keeping = Keeping(here.rank, parameters.take)
        watchers = [*keeping.watchers, OwnStatistics(several)]
        with ExitStack() as stack:
            RankCounter(here, steps, watchers).begin(stack)
            if tape is not None:
                play_loaders(stack, tape)
            _do(task, [])
            return keeping.kept()

    with as_cuda(real_time=True):
        (found,) = run_forked(run_rank, 1)
    kept: Kept = found
    return kept
