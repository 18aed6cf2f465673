"""Scripts that start their processes themselves, by ``torch.multiprocessing``.

``mp.spawn`` runs a function on ranks, which are forked processes here. So do
several ``mp.Process``: they begin together, as ranks of a simulated machine
do, when there is one for each GPU, or else when the first of them is joined::

    processes = [mp.Process(target=f, args=(r, 2)) for r in range(2)]
    for p in processes: p.start()       the second time both run, to their end
    for p in processes: p.join()        with more GPUs than two, here

What is never joined runs where the script ends, as Python waits for it there.

A process of the standard library's ``multiprocessing`` is a real one: it may
be for anything, and it has no simulated GPU. The report says so.
"""

import copy
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from typing import Any

import torch.multiprocessing as mp

from dpkit.sim.changes.change import replaced
from dpkit.sim.cuda_names.not_modelled import note
from dpkit.sim.devices.configuration import simulation
from dpkit.torchrun.script import as_program

Task = Callable[[], object]
RunTasks = Callable[[Sequence[Task]], None]  # one for each rank
_Process: Any = mp.Process
_get_context: Any = mp.get_context
_start: Any = BaseProcess.start


def spawn_ranks(stack: ExitStack, run: RunTasks) -> Callable[[], None]:
    """Run what a script spawns as ranks, until a stack ends.

    Args:
        stack: What undoes it.
        run: Runs tasks on ranks, one on each.

    Returns:
        What runs the processes that were started and never joined.
    """

    def spawn(
        fn: Callable[..., object],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> None:
        """Stand in for ``torch.multiprocessing.spawn``."""
        if not join:
            raise NotImplementedError(
                "processes of a simulated machine run to their end when they "
                "are started (join: False)"
            )
        run([_task(fn, (rank, *args), {}) for rank in range(nprocs)])

    started: list[DeferredProcess] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        """Stand in for ``torch.multiprocessing.Process``."""
        target = kwargs.get("target") or (args[1] if len(args) > 1 else None)
        module = str(getattr(target, "__module__", "torch"))
        if module.partition(".")[0] == "torch":  # as of a DataLoader
            return _Process(*args, **kwargs)
        return DeferredProcess(started, run, *args, **kwargs)

    def get_context(method: str | None = None) -> Any:
        """Stand in for ``torch.multiprocessing.get_context``."""
        context: Any = copy.copy(_get_context(method))
        context.Process = make
        return context

    for owner, name, value in (
        (BaseProcess, "start", _start_noted),
        (mp, "spawn", spawn),
        (mp, "start_processes", spawn),
        (mp, "Process", make),
        (mp, "get_context", get_context),
    ):
        stack.callback(replaced(owner, name, value).apply())

    def join_all() -> None:
        for process in [p for p in started if not p.daemon]:
            process.join()

    return join_all


def _start_noted(process: Any) -> None:
    """Stand in for the start of any real process, and note a script's."""
    target = getattr(process, "_target", None) or type(process)
    if _is_of_script(str(getattr(target, "__module__", ""))):
        note(
            "multiprocessing.Process: a process of this machine, without "
            "simulated GPUs; a rank is started by torch.multiprocessing, "
            "or by python -m dpkit torchrun"
        )
    _start(process)


def _is_of_script(module: str) -> bool:
    """Return whether a module is the script's, by a name such as "torch.x"."""
    first = module.partition(".")[0]
    return first not in (*sys.stdlib_module_names, "torch", "dpkit")


def _task(
    fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Task:
    def run() -> None:
        with as_program():
            fn(*args, **kwargs)

    return run


class DeferredProcess:
    """A process that begins together with others like it."""

    exitcode: int | None = None
    pid: int | None = None

    def __init__(
        self,
        started: "list[DeferredProcess]",
        run: RunTasks,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._started = started
        self._run = run
        self._task = _task(target or print, args, kwargs or {})

    def start(self) -> None:
        """Note that it is to begin; with one for each GPU, all begin."""
        self._started.append(self)
        if len(self._started) == simulation.clock.cluster.num_devices:
            self.join()

    def join(self, timeout: float | None = None) -> None:
        """Run all that were started, if this one has not run."""
        if self.exitcode is not None:
            return
        together = list(self._started)
        self._started.clear()
        for process in together:
            process.exitcode = 0
        self._run([process._task for process in together])

    def is_alive(self) -> bool:
        """Return whether it has been started and not joined."""
        return self in self._started
