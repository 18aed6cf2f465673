"""Scripts that start their processes themselves, by ``torch.multiprocessing``.

``mp.spawn`` runs a function on ranks, which are forked processes here. So do
several ``mp.Process``: they begin together, as ranks of a simulated machine
do, when there is one for each GPU, or else when the first of them is joined,
or when the script reads a queue or a pipe that may be theirs::

    processes = [mp.Process(target=f, args=(r, 2)) for r in range(2)]
    for p in processes: p.start()       the second time both run, to their end
    for p in processes: p.join()        with more GPUs than two, here

What is never joined runs where the script ends, as Python waits for it there.

A process of the standard library's ``multiprocessing`` is a real one: it may
be for anything, and it has no simulated GPU. The report says so. Real are also
the processes of loaders, pools and managers.
"""

import copy
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from multiprocessing import util
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue, SimpleQueue
from typing import Any, ClassVar

import torch.multiprocessing as mp

from dpkit.runs.cuda_names.not_modelled import note
from dpkit.runs.torchrun.script import as_program
from dpkit.sim import places
from dpkit.sim.changes import replaced
from dpkit.sim.devices import simulation

Task = Callable[[], object]
RunTasks = Callable[[Sequence[Task]], None]  # one for each rank
_Process: Any = mp.Process
_get_context: Any = mp.get_context
_start: Any = BaseProcess.start
_util: Any = util


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
        run([_task(fn, rank, *args) for rank in range(nprocs)])

    class RankProcess(DeferredProcess):
        """Stands in for ``torch.multiprocessing.Process``, in this run."""

        waiting: ClassVar[list[DeferredProcess]] = []

        @staticmethod
        def run_together(tasks: Sequence[Task]) -> None:
            """Run tasks on ranks."""
            run(tasks)

    def get_context(method: str | None = None) -> Any:
        """Stand in for ``torch.multiprocessing.get_context``."""
        context: Any = copy.copy(_get_context(method))
        context.Process = RankProcess
        return context

    for owner, name, value in (
        (Queue, "get", _reading(Queue.get, RankProcess)),
        (SimpleQueue, "get", _reading(SimpleQueue.get, RankProcess)),
        (Connection, "recv", _reading(Connection.recv, RankProcess)),
        (BaseProcess, "start", _start_noted),
        (mp, "spawn", spawn),
        (mp, "start_processes", spawn),
        (mp, "Process", RankProcess),
        (mp, "get_context", get_context),
    ):
        stack.callback(replaced(owner, name, value).apply())

    def join_all() -> None:
        for process in [p for p in RankProcess.waiting if not p.daemon]:
            process.join()

    return join_all


def _start_noted(process: Any) -> None:
    """Stand in for the start of any real process, and note a script's."""
    if _is_of_script(type(process), getattr(process, "_target", None)):
        note(
            "multiprocessing.Process: a process of this machine, without "
            "simulated GPUs; a rank is started by torch.multiprocessing, "
            "or by python -m dpkit torchrun"
        )
    _start(process)


def _is_of_script(kind: type, target: Any) -> bool:
    """Return whether a process runs what a script has defined.

    A process of a loader, a pool or a manager runs a function of a library.

    Args:
        kind: The class of the process.
        target: What it is to run; None: a method of its class.
    """
    while isinstance(target, partial):
        target = target.func
    module = str(getattr(target or kind, "__module__", ""))
    first = module.partition(".")[0]
    return first not in (*sys.stdlib_module_names, "torch", "dpkit")


def _reading(
    read: Callable[..., Any], of_ranks: "type[DeferredProcess]"
) -> Callable[..., Any]:
    """Return what begins all processes that wait, where a script reads.

    Args:
        read: A method that waits for what another process sends.
        of_ranks: The class of the processes.
    """

    @wraps(read)
    def call(*args: Any, **kwargs: Any) -> Any:
        if of_ranks.waiting and places.is_program(sys._getframe(1)):
            of_ranks.waiting[0].join()
        return read(*args, **kwargs)

    return call


def _task(fn: Callable[..., object], *args: Any) -> Task:
    """Return what a rank does: it ends when its queues have been emptied.

    Else its process would be ended with what nobody has read yet.
    """

    def run() -> None:
        with as_program():
            fn(*args)
            _util._run_finalizers()

    return run


class DeferredProcess:
    """A process that begins together with others like it, and runs to its end.

    A script may derive its own from it, with a method ``run``. A process that
    runs a function of a library is a real one.
    """

    waiting: ClassVar[list["DeferredProcess"]]  # they are to begin
    pid: int | None = None

    def __new__(
        cls,
        group: None = None,
        target: Callable[..., object] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Make it, or a real one."""
        if _is_of_script(cls, target):
            return super().__new__(cls)
        return _Process(group, target, *args, **kwargs)

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or type(self).__name__
        self.daemon = daemon
        self._exitcode: int | None = None
        self._target = partial(target or print, *args, **(kwargs or {}))

    @staticmethod
    def run_together(tasks: Sequence[Task]) -> None:
        """Run tasks on ranks; the class of a launch says how."""
        raise NotImplementedError

    def run(self) -> None:
        """Do what the process is for."""
        self._target()

    def start(self) -> None:
        """Note that it is to begin; with one for each GPU, all begin."""
        self.waiting.append(self)
        if len(self.waiting) == simulation.clock.cluster.num_devices:
            self.join()

    def join(self, timeout: float | None = None) -> None:
        """Run all that wait, if this one does."""
        if self not in self.waiting:
            return
        together = list(self.waiting)
        self.waiting.clear()
        for process in together:
            process._exitcode = 0
        self.run_together([_task(process.run) for process in together])

    @property
    def exitcode(self) -> int | None:
        """How it has ended; who asks waits for the end."""
        self.join()
        return self._exitcode

    def is_alive(self) -> bool:
        """Return False: who asks waits for the end."""
        self.join()
        return False

    def terminate(self) -> None:
        """End it, if it waits to begin."""
        if self in self.waiting:
            self.waiting.remove(self)
            self._exitcode = -signal.SIGTERM

    kill = terminate

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    @property
    def sentinel(self) -> int:
        """Refuse: nothing is there to wait for.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "processes of a simulated machine run to their end when one of "
            "them is joined, and have nothing else to wait for (sentinel of "
            f"process: {self.name}); call join()"
        )
