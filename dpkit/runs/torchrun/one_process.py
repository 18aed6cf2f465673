"""Run a script as ``python script.py`` would: one process, several GPUs.

The process drives all devices. If the script starts processes itself, by
``torch.multiprocessing``, these are ranks, each with a device, and the report
is theirs.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from dpkit.runs.cuda_names import not_modelled
from dpkit.runs.cuda_names.patches import as_cuda
from dpkit.runs.cuda_names.time_of_programs import show_simulated_time
from dpkit.runs.forked.running import RankError
from dpkit.runs.ranks.error_words import in_words
from dpkit.runs.ranks.watching import limit_of
from dpkit.runs.torchrun.facts import (
    EnoughSteps,
    RankFacts,
    StepEnd,
    is_on_device,
)
from dpkit.runs.torchrun.failures import Failure, failure_of
from dpkit.runs.torchrun.held import HeldMemory
from dpkit.runs.torchrun.launching import RankReport, Run, Settings, do_tasks
from dpkit.runs.torchrun.made_up import make_up_values
from dpkit.runs.torchrun.races import NothingOrders, sentences_of
from dpkit.runs.torchrun.script import Script, run_script
from dpkit.runs.torchrun.script_watch import IdleScript, ScriptWatch
from dpkit.runs.torchrun.spawning import Task, spawn_ranks
from dpkit.sim.clock import Block
from dpkit.sim.devices import machine, simulation
from dpkit.sim.streams import SimEvent, current_stream
from dpkit.sim.timeline import Timeline
from dpkit.sim.tracing import trace

Ends = list[tuple[SimEvent, list[int]]]


def run_in_one_process(script: Script, settings: Settings) -> Run:
    """Run a script, and return what was recorded.

    The machine has been configured, with one host for all devices.
    """
    with ExitStack() as machines, ExitStack() as watching:
        begun = machines.enter_context(trace(races=settings.races))
        done = Run(begun)
        watch = ScriptWatch(limit_of(settings.idle_limit))

        def run_tasks(tasks: Sequence[Task]) -> None:
            """Do tasks on ranks, whose timeline takes the place of this one.

            Raises:
                RankError: one has failed; or there are too few devices.
            """
            _check_devices(len(tasks))
            watching.close()  # each rank is watched for itself
            machines.close()
            machines.enter_context(machine(hosts="per_device"))
            done.timeline = machines.enter_context(trace())
            with watch.resting():
                do_tasks(done, tasks, settings)

        counter = StepCounter(settings.steps)
        failed: Failure | None = None
        try:
            with as_cuda(real_time=True), ExitStack() as stack:
                if not settings.has_real_time:
                    show_simulated_time(stack)
                if simulation.backing.type == "meta":
                    make_up_values(stack)
                counter.begin(watching)
                HeldMemory().begin(watching)
                join_all = spawn_ranks(stack, run_tasks)
                stack.enter_context(watch.watching())
                _do(script)
                join_all()
        except RankError as failure:
            done.failure = failure
            done.ranks = [one.value for one in failure.outcomes]
            if failure.__cause__ is not None and done.timeline is begun:
                failed = failure_of(failure.__cause__)
        if done.timeline is begun:
            machines.close()  # the timeline is complete
            done.is_one_process = True
            done.ranks = list(counter.reports(begun))
            done.failed_alone = failed
    return done


def _check_devices(ranks: int) -> None:
    devices = simulation.clock.cluster.num_devices
    if ranks > devices:
        raise RankError(
            f"the script starts more processes than there are GPUs (processes "
            f"together: {ranks}, --gpus: {devices})",
            [],
        )


def _do(script: Script) -> None:
    """Run the script.

    Raises:
        RankError: the script has failed, or one of the ranks it has started;
            or it has done nothing for as long as the limit.
    """
    try:
        run_script(script)
    except EnoughSteps:
        pass
    except RankError:
        raise
    except IdleScript as ended:
        raise RankError(str(ended), []) from ended
    except Exception as error:
        failed = f"the script failed ({in_words(error)})"
        raise RankError(failed, []) from error


class StepCounter:
    """Counts the steps of a script's optimizers, and looks at each device.

    A script may have several, at one time or one after another: the one that
    has stepped most counts, if it changes what lies on a device.

    Args:
        most_steps: After how many the script ends; None: it does all.
    """

    def __init__(self, most_steps: int | None) -> None:
        self._most = most_steps
        # What each optimizer has left: the end of a step, and the most memory
        # of each device until then.
        self._of: WeakKeyDictionary[Optimizer, Ends] = WeakKeyDictionary()
        self._ends: Ends = []  # the longest

    def begin(self, stack: ExitStack) -> None:
        """Count until a stack ends."""
        hook: Any = self._stepped
        stack.callback(register_optimizer_step_post_hook(hook).remove)

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        if not is_on_device(optimizer):
            return
        first = next(
            p.device
            for group in optimizer.param_groups
            for p in group["params"]
            if p.device.type == "sim"
        )
        end = current_stream(torch.device("sim", first.index)).record_event()
        ends = self._of.setdefault(optimizer, [])
        ends.append((end, list(simulation.memory.peak)))
        if len(ends) > len(self._ends):
            self._ends = ends
        if len(ends) == self._most:
            raise EnoughSteps

    def reports(self, timeline: Timeline) -> list[RankReport | None]:
        """Return what each device has done; None for one without work."""
        notes = dict(not_modelled.notes)
        races = sentences_of(timeline.races or [])
        looked_for = [] if timeline.races is None else [NothingOrders]
        found: list[RankReport | None] = []
        for device, peak in enumerate(simulation.memory.peak):
            blocks = [
                block
                for block in timeline.blocks
                if block.device == f"sim:{device}"
            ]
            used = blocks or any(
                span.device == f"sim:{device}" for span in timeline.spans
            )
            facts = self._facts(device, peak, blocks)
            one = RankReport(
                facts=facts,
                notes=notes,
                findings=races,
                kept={},
                looked_for=[*looked_for],
                compared={},
            )
            found.append(one if used else None)
        if notes and not any(found):  # its work is in other processes
            found[0] = RankReport(
                facts=self._facts(0, 0, []),
                notes=notes,
                findings={},
                kept={},
                looked_for=[],
                compared={},
            )
        return found

    def _facts(self, device: int, peak: int, blocks: list[Block]) -> RankFacts:
        steps = [
            StepEnd(end.mark or 0, peaks[device]) for end, peaks in self._ends
        ]
        return RankFacts(steps, peak, blocks, traffic=[])
