"""Run a script on the ranks of a simulated machine, and record what happens.

Each rank runs the script, as by torchrun.
"""

import atexit
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from dpkit.processes import finish_program
from dpkit.runs.cuda_names import not_modelled
from dpkit.runs.cuda_names.patches import as_cuda
from dpkit.runs.cuda_names.time_of_programs import show_simulated_time
from dpkit.runs.forked.proxy import Arrivals
from dpkit.runs.forked.running import ForkedRank, RankError, run_forked
from dpkit.runs.ranks.error_words import in_words
from dpkit.runs.torchrun.early_end import report_at_once
from dpkit.runs.torchrun.examples import OF_EXAMPLES
from dpkit.runs.torchrun.facts import EnoughSteps, RankCounter, RankFacts
from dpkit.runs.torchrun.failures import Failure, failure_of
from dpkit.runs.torchrun.held import HeldMemory
from dpkit.runs.torchrun.made_up import make_up_values
from dpkit.runs.torchrun.new_groups import NewGroups
from dpkit.runs.torchrun.races import NothingOrders
from dpkit.runs.torchrun.replicas import Replicas
from dpkit.runs.torchrun.script import RankPlace, Script, run_script
from dpkit.runs.torchrun.shuffled import ShuffledParts
from dpkit.runs.torchrun.spawning import Task
from dpkit.runs.torchrun.watchers import WATCHERS, Watcher
from dpkit.sim.devices import set_device, simulation
from dpkit.sim.timeline import Timeline
from dpkit.sim.tracing import trace

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
    sees_own: bool = False  # whether a rank sees its own GPU alone
    idle_limit: float | None = None  # seconds after which idle ranks end


class RankReport(NamedTuple):
    """What the process of a rank sends at its end."""

    facts: RankFacts
    notes: dict[str, str]  # what was done otherwise -> the line
    findings: dict[str, str]  # what the watchers have found -> the line
    kept: dict[str, list[int]]  # what is found if it is equal on all ranks
    looked_for: list[type[Watcher]]
    compared: dict[type[Watcher], Any]  # what each has for a comparison
    failure: Failure | None = None  # what has ended its script


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

    failed_alone: Failure | None = None  # that of one process

    def failures(self) -> dict[int | None, Failure]:
        """Return how ranks have failed, the one first that ended the run.

        One process is no rank, and has the number None.
        """
        if self.failed_alone is not None:
            return {None: self.failed_alone}
        failed = {
            rank: one.failure
            for rank, one in enumerate(self.ranks)
            if one is not None and one.failure is not None
        }
        ended_by = str(self.failure)
        first = [r for r in failed if f"rank {r} failed" in ended_by]
        return {r: failed[r] for r in dict.fromkeys([*first, *failed])}


def run_on_ranks(script: Script, settings: Settings) -> Run:
    """Run a script, and return what was recorded.

    The machine has been configured, with a device for each rank.
    """
    with trace() as timeline:
        done = Run(timeline)
        try:
            with as_cuda(real_time=True):
                do_tasks(done, tasks_of_torchrun(script, settings), settings)
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
        idle_limit=settings.idle_limit,
    )


def tasks_of_torchrun(script: Script, settings: Settings) -> list[Task]:
    """Return what each rank does: it runs the script."""
    size = settings.nodes * settings.ranks_per_node

    def run_at(place: RankPlace) -> None:
        os.environ.update(place.environment())
        run_script(script)

    return [
        partial(
            run_at,
            RankPlace(
                rank=rank,
                world_size=size,
                ranks_per_node=settings.ranks_per_node,
                sees_own=settings.sees_own,
            ),
        )
        for rank in range(size)
    ]


def _run_rank(task: Task, settings: Settings, here: ForkedRank) -> RankReport:
    """Do the task of a rank, in its process, and count what it does."""
    kinds = *WATCHERS, *OF_EXAMPLES, ShuffledParts, NewGroups, Replicas
    watchers = [make(here.rank) for make in kinds]
    if settings.races:
        watchers.append(NothingOrders(here.rank))
    counting = RankCounter(here, settings.steps, watchers)
    with ExitStack() as stack:
        report_at_once(stack, here, lambda: report_of_rank(counting, watchers))
        if not settings.has_real_time:
            show_simulated_time(stack)
        if simulation.backing.type == "meta":
            make_up_values(stack)
        counting.begin(stack)
        HeldMemory().begin(stack)
        try:
            do_in_rank(task)
        except BaseException as error:
            left = report_of_rank(counting, watchers, are_timed=False)
            if isinstance(error, Exception):
                left = left._replace(failure=failure_of(error))
            here.left.append(left)
            raise
        return report_of_rank(counting, watchers)


def report_of_rank(
    counting: RankCounter, watchers: Sequence[Watcher], are_timed: bool = True
) -> RankReport:
    """Return what a rank reports in its end.

    Args:
        counting: What has counted.
        watchers: What has looked on.
        are_timed: Whether the time of steps can be asked for; it cannot once
            a rank has failed.
    """
    findings: dict[str, str] = {}
    kept: dict[str, list[int]] = {}
    for watcher in watchers:
        watcher.end()
        findings |= watcher.findings
        kept |= watcher.kept()
    has_values = simulation.backing.type != "meta"
    return RankReport(
        facts=counting.facts(are_timed),
        notes=not_modelled.notes,
        findings=findings,
        kept=kept,
        looked_for=[
            type(w) for w in watchers if has_values or not w.needs_values
        ],
        compared={type(w): w.for_comparison() for w in watchers},
    )


def do_in_rank(task: Task) -> None:
    """Do the task of a rank, to its ``atexit``.

    Threads that it has started are waited for first, except those of a rank
    that has failed or is cut short: nobody may tell them to end.
    """
    atexit._clear()  # those of the parent
    # As on CUDA, a process begins on the first GPU of its node.
    set_device(simulation.first_device)
    try:
        task()
    except EnoughSteps:
        atexit._run_exitfuncs()
    except Exception as error:
        if "fork-based multiprocessing" in in_words(error):
            error.add_note(_BACKWARD_BEFORE)
        atexit._run_exitfuncs()
        raise
    else:
        finish_program()
