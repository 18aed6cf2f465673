"""The thread of a launch that does what the process of a rank asks for.

It is a rank as in ``dpkit.sim.launch``: it takes turns with the others, and
where it waits, others run. Its program is what its process sends: orders,
which have no answer, and questions, which have one.
"""

import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from dpkit.runs.forked.packing import Parcel, SharedMemory, put_back, unpack
from dpkit.runs.forked.requests import read_message, write_message
from dpkit.runs.forked.store import STORE_METHODS
from dpkit.runs.ranks.alike import AlikeGroup, AlikeWorld
from dpkit.runs.ranks.group import SimGroup
from dpkit.runs.ranks.pending import Contribution, PendingCollective
from dpkit.runs.ranks.rank_group import CollectiveCall
from dpkit.runs.ranks.store import RankStore
from dpkit.runs.ranks.watching import AT_WORK
from dpkit.runs.ranks.works import SimWork
from dpkit.runs.ranks.world import World
from dpkit.sim.clock import SECOND, Clock, Work
from dpkit.sim.devices import set_device, simulation
from dpkit.sim.streams import SimEvent, become_rank
from dpkit.units import show_seconds

# A collective, by its name and the ranks of its group (a name alone is not
# unique) -> rank -> when its stream came to it.
Arrivals = dict[tuple[str, tuple[int, ...]], dict[int, SimEvent]]

IDLE_AFTER = 1.0  # seconds after which a process is looked at


class Outcome(NamedTuple):
    """How the program of a rank has ended."""

    value: Any = None  # what it has returned; what it has left, if it failed
    error: BaseException | None = None  # what it has raised
    where: str = ""  # the line of the program at which it ended by an error


class OpenOperation(NamedTuple):
    """A collective that the process has called, until it has the result."""

    work: SimWork
    parcel: Parcel
    tensors: Any
    memory: SharedMemory


class _Noting(SimGroup):
    """A process group that notes when ranks come to its collectives."""

    arrivals: Arrivals
    allowed = float("inf")  # seconds that a rank may wait for others

    def _arrive(
        self,
        pending: PendingCollective,
        group_rank: int,
        own: Contribution,
        kind: str,
        how: dict[str, Any],
    ) -> None:
        if own.begin is not None:
            of_group = pending.name, self._ranks
            found = self.arrivals.setdefault(of_group, {})
            found[own.rank] = own.begin
        issued = simulation.whole_clock.hosts.python.mark(own.rank)
        pending.issued[own.rank] = issued
        if len(pending.issued) == pending.size:
            self._check_wait(pending)
        super()._arrive(pending, group_rank, own, kind, how)

    def _check_wait(self, pending: PendingCollective) -> None:
        """Raise RuntimeError if a rank has waited longer than is allowed."""
        issued = pending.issued
        first = min(issued, key=lambda rank: issued[rank])
        last = max(issued, key=lambda rank: issued[rank])
        seconds = (issued[last] - issued[first]) / SECOND
        if seconds > self.allowed:
            raise RuntimeError(
                f"timed out: rank {first} has waited for rank {last} longer "
                f"than the group allows ({pending.name}, waited: "
                f"{show_seconds(seconds)}, timeout: "
                f"{show_seconds(self.allowed)}); on GPUs the watchdog of NCCL "
                "ends the job; init_process_group and new_group take a timeout"
            )


class ProxyGroup(_Noting):
    """A process group of a rank, in the parent."""


class ProxyAlikeGroup(_Noting, AlikeGroup):
    """A process group of the one rank that stands for all, in the parent."""


class Proxy:
    """The process of a rank, as the launch in the parent sees it.

    Args:
        rank: Its number.
        process: The number of its process.
        connection: The parent's end of the connection to it.
        world: What the ranks share.
        store: The keys and values of all ranks.
        arrivals: Gets when ranks come to collectives.
    """

    def __init__(
        self,
        rank: int,
        *,
        process: int,
        connection: Connection,
        world: World,
        store: RankStore,
        arrivals: Arrivals,
    ) -> None:
        self.rank = rank
        self._arrivals = arrivals
        self.outcome: Outcome | None = None  # once its program has ended
        self._process = process
        self._connection = connection
        self._world = world
        self._store = store
        self.heard = 0  # how often it has asked for something
        self.awaits = False  # whether nothing is left that it has asked for
        self._error: Exception | None = None  # of an order, until a question
        self._marks: dict[int, Work] = {}
        self._copies: dict[int, int] = {}  # when they were issued
        self._groups: dict[int, SimGroup] = {}
        self._works: dict[int, SimWork] = {}
        self._open: dict[int, OpenOperation] = {}

    @property
    def clock(self) -> Clock:
        """The simulated clock."""
        return simulation.whole_clock

    def run(self, rank: int) -> None:
        """Do what the process asks for, until its program ends.

        Raises:
            DisconnectedError: the process has ended without a word.
            BaseException: what has ended the program.
        """
        become_rank(rank, _refuse_group)
        set_device(rank)
        while self.outcome is None:
            self.awaits = True
            self._await_message()
            self.awaits = False
            self.heard += 1
            for name, args in read_message(self._connection):
                self._do(name, args)
        error = self.outcome.error or self._error
        if error is not None:
            raise error

    def _await_message(self) -> None:
        """Wait for the process; if it does nothing, let other ranks go on.

        It may wait for another rank outside of ``torch.distributed``, such as
        for a file.
        """
        used = seconds_used(self._process)
        while not self._connection.poll(IDLE_AFTER):
            before = used
            used = seconds_used(self._process)
            if used - before < AT_WORK * IDLE_AFTER:
                self._world.scheduler.let_others(self.rank)

    def _do(self, name: str, args: tuple[Any, ...]) -> None:
        """Obey an order, or answer a question."""
        if name in QUESTIONS:
            write_message(self._connection, self._answer(name, args))
        elif self._error is None or name == "end":
            try:
                ORDERS[name](self, *args)
            except Exception as failure:
                self._error = failure

    def _answer(self, name: str, args: tuple[Any, ...]) -> tuple[str, Any]:
        """Return the answer to a question, or the error of an order before."""
        failed = self._error
        self._error = None
        if failed is not None:
            return "error", failed
        try:
            return "answer", QUESTIONS[name](self, *args)
        except Exception as failure:
            return "error", failure

    def end(self, outcome: Outcome) -> None:
        """Take in how the program has ended."""
        self.outcome = outcome

    # -- the clock

    def copy(self, kept: int | None, args: Any, kwargs: Any) -> None:
        """Issue a copy; if others may wait for it, keep when it was issued."""
        issued = self.clock.copy(*args, **kwargs)
        if kept is not None:
            self._copies[kept] = issued

    def await_copy(self, device: int, copy: int) -> None:
        """Move autograd's thread of a device on to when a copy was issued."""
        if copy in self._copies:
            self.clock.hosts.await_thread(device, self._copies[copy])

    def end_backward(self) -> None:
        """Go on when the last of autograd's threads is done."""
        self.clock.end_backward()
        if not self.clock.hosts.in_backward:
            self._copies.clear()

    def set_stream(self, device: int, number: int) -> None:
        """Issue to another stream of a device from now on."""
        self.clock.current[device] = number

    def mark_stream(
        self, number: int, device: int, stream: int, after: Sequence[int]
    ) -> None:
        """Put a mark at the end of a stream."""
        works = [self._marks[other] for other in after]
        mark = self.clock.mark_stream(device, stream, *works)
        self._marks[number] = mark

    # -- the groups

    def new_group(
        self,
        number: int,
        options: dict[str, Any],
        description: str,
        allowed: float,
    ) -> None:
        """Make the group of this rank that another in its process asks."""
        alike = isinstance(self._world, AlikeWorld)
        kind: Any = ProxyAlikeGroup if alike else ProxyGroup
        group = kind(SimpleNamespace(**options), self._world, self.rank)
        group.arrivals = self._arrivals
        group.allowed = allowed
        group._set_group_desc(description)
        self._groups[number] = group

    def call(
        self, group: int, number: int, call: CollectiveCall, parcel: Parcel
    ) -> None:
        """Contribute to an operation of a group."""
        with simulation.memory.paused():
            tensors, memory = unpack(parcel, self._process)
        work = self._groups[group]._perform(call, tensors, tensors)
        self._works[number] = work
        self._open[number] = OpenOperation(work, parcel, tensors, memory)

    def wait_for(self, numbers: Sequence[int]) -> list[tuple[int, list[bool]]]:
        """Allow others to run until all ranks have come to some operations.

        Returns:
            All operations of this rank that are over, each with its number:
            whether the values of its tensors are known.
        """
        for number in numbers:
            self._works[number]._let_all_arrive()
        over = []
        for number, operation in list(self._open.items()):
            if all(
                collective.is_over for collective in operation.work.pending
            ):
                _, parcel, tensors, memory = self._open.pop(number)
                over.append((number, put_back(parcel, tensors, memory)))
        return over

    def wait_in_stream(self, numbers: Sequence[int]) -> None:
        """Make the current stream wait until operations are over."""
        for number in numbers:
            self._works[number]._wait_in_stream()

    def is_completed(self, numbers: Sequence[int]) -> bool:
        """Return whether operations are over, at this time of the clock."""
        return all(self._works[number].is_completed() for number in numbers)

    def forget_call(self, number: int) -> None:
        """Forget an operation for which the process cannot wait any more."""
        self._works.pop(number, None)

    def forget_mark(self, number: int) -> None:
        """Forget a mark that the process does not have any more."""
        self._marks.pop(number, None)

    def ask_store(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of the store."""
        return STORE_METHODS[method](self._store, *args)


def seconds_used(process: int) -> float:
    """Return the seconds of the CPU that a process has used.

    Seconds of its children count too, once they have ended.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:  # it has ended
        return 0.0
    ticks = sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _refuse_group(options: Any) -> NoReturn:
    raise RuntimeError("the process of a rank makes its groups itself")


Handler = Callable[..., Any]

#: What a rank asks for without an answer -> the function that does it.
ORDERS: dict[str, Handler] = {
    "compute": lambda p, args, kwargs: p.clock.compute(*args, **kwargs),
    "copy": Proxy.copy,
    "busy": lambda p, *args: p.clock.hosts.busy(*args),
    "wait": lambda p, *args: p.clock.wait(*args),
    "wait_until": lambda p, *args: p.clock.hosts.wait_until(*args),
    "poll": lambda p, device, name, share: p.clock.poll(
        device, name, share=share
    ),
    "name_stream": lambda p, *args: p.clock.name_stream(*args),
    "set_stream": Proxy.set_stream,
    "mark_stream": Proxy.mark_stream,
    "forget_mark": Proxy.forget_mark,
    "await_copy": Proxy.await_copy,
    "begin_backward": lambda p: p.clock.begin_backward(),
    "end_backward": Proxy.end_backward,
    "new_group": Proxy.new_group,
    "call": Proxy.call,
    "wait_in_stream": Proxy.wait_in_stream,
    "forget_call": Proxy.forget_call,
    "end": Proxy.end,
}

#: What a rank asks for and waits for -> the function that has the answer.
QUESTIONS: dict[str, Handler] = {
    "mark": lambda p, device: p.clock.mark(device),
    "new_stream": lambda p, device: p.clock.new_stream(device),
    "end_of": lambda p, mark: p.clock.end_of(p._marks[mark]),
    "is_done": lambda p, m, device: p.clock.is_done(p._marks[m], device),
    "when_issued": lambda p, mark: p._marks[mark].issued,
    "wait_for": Proxy.wait_for,
    "is_completed": Proxy.is_completed,
    "store": Proxy.ask_store,
}
