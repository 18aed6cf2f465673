"""Fork the processes of ranks, and end them.

Whatever happens, no process is left: where a rank fails, is killed or cannot
go on, the others learn of it, have a moment to end, and are then killed.
"""

import ctypes
import multiprocessing
import multiprocessing.util
import os
import pickle
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from secrets import token_hex
from tempfile import gettempdir
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch.distributed import distributed_c10d as c10d

from dpkit.library import LIBRARY
from dpkit.processes import flush_output
from dpkit.processes.run_clock import RunClock, read_uses
from dpkit.runs.forked.clock import RemoteClock
from dpkit.runs.forked.group import Calls, ForkedGroup
from dpkit.runs.forked.host_memory import where_memory_ran_out
from dpkit.runs.forked.idle import (
    ProcessWatch,
    postponing_questions,
    tell_when_asked,
)
from dpkit.runs.forked.other_programs import refuse_other_programs
from dpkit.runs.forked.proxy import Arrivals, Outcome, Proxy
from dpkit.runs.forked.requests import (
    DisconnectedError,
    RankEnded,
    Requests,
    read_message,
    write_message,
)
from dpkit.runs.forked.signals import signal_of
from dpkit.runs.forked.store import RemoteStore
from dpkit.runs.ranks.alike import AlikeWorld, tell_of_one
from dpkit.runs.ranks.alike_checks import check_machine
from dpkit.runs.ranks.dtensor import draw_on_shards
from dpkit.runs.ranks.error_words import WordsError, in_words
from dpkit.runs.ranks.flat_parameters import flatten_by_ranks
from dpkit.runs.ranks.saving import save_by_ranks
from dpkit.runs.ranks.store import RankStore
from dpkit.runs.ranks.thread_state import ThreadState, import_dtensor
from dpkit.runs.ranks.watching import IdleError, ProgramLine, limit_of
from dpkit.runs.ranks.world import World
from dpkit.sim.changes import replaced
from dpkit.sim.devices import machine, set_device, simulation
from dpkit.sim.places import LIBRARIES, OWN_FILES
from dpkit.sim.streams import become_rank

_PR_SET_PDEATHSIG = 1  # sys/prctl.h
_NO_CONNECTION = (
    "its process has closed all its files, also the connection to the launch, "
    "as by os.closerange"
)
# Within so many seconds a rank is to end, when another has failed. They count
# as RunClock counts: a busy machine gives it longer.
END_WITHIN = 5.0
_LOOK_SECONDS = 0.1  # between two looks whether it has ended
SAVE_WITHIN = 30.0  # seconds that it has after a signal, as under torchrun


class ForkedRank(NamedTuple):
    """What the program of a rank is given."""

    rank: int
    world_size: int
    store: RemoteStore  # by which it can make its process group
    calls: Calls  # the operations of its groups
    end: Callable[[Any], None]  # sends its value: the program is over
    # What stands here in the end is the value of a program that has failed.
    left: list[Any]


Program = Callable[[ForkedRank], Any]


class RankError(RuntimeError):
    """Ranks have ended by an error; its notes say where each of them was."""

    def __init__(self, message: str, outcomes: list[Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes
        for rank, outcome in enumerate(outcomes):
            if outcome.where:
                self.add_note(f"rank {rank} was at {outcome.where}")


def run_forked(
    program: Program,
    size: int,
    algorithm: str = LIBRARY,
    arrivals: Arrivals | None = None,
    alike: bool = False,
    idle_limit: float | None = None,
) -> list[Any]:
    """Run a program on ranks that are processes; return their values.

    Rank r computes on ``sim:r``. All have one simulated clock, which is that
    of this process: a trace that runs here has what they do.

    Args:
        program: Called in each process. ``torch.distributed`` makes its
            process group there.
        size: The number of ranks, one device for each.
        algorithm: How collectives are sent; see :func:`dpkit.sim.launch`.
        arrivals: Gets, for each collective, when each rank came to it.
        alike: Whether rank 0 stands for all, as in :func:`dpkit.sim.launch`,
            and is the only process. It may ask which rank it is.
        idle_limit: The seconds after which ranks that do nothing end; see
            :func:`dpkit.sim.launch`.

    Raises:
        RankError: a rank has raised an exception or was killed, none can go
            on, or none has done anything for ``idle_limit``.
        RuntimeError: this system cannot fork safely.
        ValueError: the limit is no positive number of seconds.
    """
    check_system()
    limit = limit_of(idle_limit)
    import_dtensor()
    with ExitStack() as stack:
        _allow_many_files(stack)
        if simulation.settings["hosts"] == "one":
            stack.enter_context(machine(hosts="per_device"))
        here = ThreadState.now()
        stack.callback(here.restore)
        if alike:
            check_machine()
            tell_of_one(stack, size)
        world: Any = (ForkedAlikeWorld if alike else ForkedWorld)(
            size, algorithm
        )
        store = RankStore(world.scheduler, size // world.scheduler.count)
        noted = {} if arrivals is None else arrivals
        ranks = _start_ranks(stack, program, world, store, noted)
        threads = _start_threads(world, ranks)
        watch = ProcessWatch(ranks, limit)
        idle: IdleError | None = None
        try:
            _wait_for_end(world, ranks, watch)
        except IdleError as reached:
            idle = reached
        except KeyboardInterrupt as error:
            _pass_on(signal_of(error), world, ranks)
            raise
        finally:
            _end(world, ranks)
            for thread in threads:
                thread.join()
        if idle is not None:
            raise RankError(str(idle), _outcomes(ranks, watch)) from None
        return _values(world, ranks)


def _start_ranks(
    stack: ExitStack,
    program: Program,
    world: Any,
    store: RankStore,
    arrivals: Arrivals,
) -> list["RankProcess"]:
    """Start the processes of ranks, which the stack ends and cleans up."""
    # Where its processes keep sockets, which the killed do not remove.
    folder = os.path.join(gettempdir(), f"pymp-{token_hex(8)}")
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    ranks: list[RankProcess] = []
    stack.callback(_kill, ranks)
    for rank in range(world.scheduler.count):
        one = RankProcess(
            rank,
            program,
            world=world,
            store=store,
            arrivals=arrivals,
            before=ranks,
            folder=folder,
        )
        ranks.append(one)
        stack.callback(os.close, one.stack)
    return ranks


def _start_threads(world: Any, ranks: list["RankProcess"]) -> list[Thread]:
    """Start a thread for each rank, which does what its process asks for."""
    threads = [
        Thread(
            target=world.scheduler.run,
            args=(rank, process.run),
            name=f"rank {rank}",
            daemon=True,
        )
        for rank, process in enumerate(ranks)
    ]
    for thread in threads:
        thread.start()
    return threads


def check_system() -> None:
    """Raise RuntimeError where a process cannot be forked safely."""
    if not sys.platform.startswith("linux"):
        raise RuntimeError(
            "ranks that are processes need Linux, where a process that has "
            f"loaded PyTorch can be forked (system: {sys.platform}); "
            "dpkit.sim.launch runs ranks as threads, on any system"
        )


def _allow_many_files(stack: ExitStack) -> None:
    """Allow as many open files as the system does, until a stack ends.

    A rank has one for each collective that is under way, and this process one
    for each of every rank.
    """
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (usual, most))


class _OwnStates(World):
    """What ranks share that are processes.

    What PyTorch has once in a process they do not: it begins as it would for
    threads, and then each has its own.
    """

    def begin(self, rank: int) -> None:
        """Begin with the random numbers, hooks and so on of a rank."""
        self._states[rank].restore()

    def _enter(self, rank: int) -> None:
        """Change nothing: only clocks and collectives are in this process."""

    def _leave(self, rank: int) -> None:
        simulation.whole_clock.flush()  # what backward has issued so far


class ForkedWorld(_OwnStates):
    """What ranks share of which each is a process."""


class ForkedAlikeWorld(_OwnStates, AlikeWorld):
    """What ranks share that are alike: one of them is a process."""


class RankProcess:
    """The process of a rank, and how this process is connected to it."""

    def __init__(
        self,
        rank: int,
        program: Program,
        *,
        world: _OwnStates,
        store: RankStore,
        arrivals: Arrivals,
        before: "Sequence[RankProcess]",
        folder: str,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, its = context.Pipe()
        self.stack = os.memfd_create("stack")
        # What it inherits would keep connections open that we have closed.
        inherited = [self.connection, *(other.connection for other in before)]
        self.process: ForkProcess = context.Process(
            target=_run_rank,
            args=(rank, program, world, its, inherited, self.stack, folder),
        )
        with postponing_questions():
            self.process.start()
        its.close()
        assert self.process.pid is not None
        self.pid = self.process.pid
        self.proxy = Proxy(
            rank,
            process=self.pid,
            connection=self.connection,
            world=world,
            store=store,
            arrivals=arrivals,
        )
        self._was_gone = False

    def run(self, rank: int) -> None:
        """Do what the process asks for, in a thread of this one.

        It has ended well if its exit status is 0, also without a word, as by
        ``os._exit(0)``.

        Raises:
            WordsError: it has ended otherwise, without a word.
            BaseException: what has ended its program.
        """
        try:
            self.proxy.run(rank)
        except DisconnectedError as error:
            clock = _clock_of([self])
            while (code := self.process.exitcode) is None:
                if clock.seconds() > END_WITHIN:
                    raise WordsError(_NO_CONNECTION) from error
                time.sleep(0.01)
            if code != 0:
                raise WordsError(_gone(code)) from None
            self.proxy.end(Outcome())

    def has_failed(self) -> bool:
        """Return whether the process has ended ill, and without a word.

        It has to be so twice: its last word may be read just now.
        """
        before = self._was_gone
        has_code = self.process.exitcode not in (None, 0)
        self._was_gone = has_code and self.proxy.outcome is None
        return before and self._was_gone


# -- in the process of a rank


def _run_rank(
    rank: int,
    program: Program,
    world: _OwnStates,
    connection: Connection,
    inherited: Sequence[Connection],
    stack: int,
    folder: str,
) -> None:
    """Run the program of a rank; this is all that its process does."""
    os.setsid()  # Ctrl-C is for the parent, which ends the ranks
    _end_with_parent()
    # The program may choose how it starts processes; this one was forked.
    multiprocessing.set_start_method(None, force=True)
    for other in inherited:
        other.close()
    requests = Requests(connection)
    requests.whole.begin()
    tell_when_asked(stack)
    refuse_other_programs()

    def get_temp_dir() -> str:
        """Return the folder of the launch, which removes it."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder

    replaced(multiprocessing.util, "get_temp_dir", get_temp_dir).apply()
    os.register_at_fork(after_in_child=requests.close_in_child)
    here = _become_rank(rank, requests, world)
    outcome = _outcome(program, here)
    flush_output()
    _end_rank(rank, requests, outcome)


def _end_rank(rank: int, requests: Requests, outcome: Outcome) -> None:
    """Send how the program of a rank has ended."""
    with suppress(BaseException):  # the parent opens what we have sent
        requests.ask("mark", rank)
    requests.check_process()
    try:
        requests.end(outcome)
    except Exception as error:  # a value that no other process can read
        requests.end(Outcome(error=_portable(error)))


def _end_with_parent() -> None:
    """Have the system kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # the parent was gone before we asked


def _become_rank(
    rank: int, requests: Requests, world: _OwnStates
) -> ForkedRank:
    """Make this process a rank."""
    calls = Calls(requests)
    clock = RemoteClock(simulation.clock.cluster, rank, requests)
    clock.on_synchronize = calls.wait_for_all
    simulation.clock = clock
    simulation.ranks_run = True
    numbers = count()
    become_rank(
        rank,
        lambda options: ForkedGroup(
            options,
            requests=requests,
            calls=calls,
            rank=rank,
            number=next(numbers),
        ),
        is_process=True,
    )
    set_device(rank)
    # In another thread "cuda" is the first device of the node, as on CUDA.
    per_node = clock.cluster.ranks_per_node or world.size
    simulation.first_device = rank // per_node * per_node
    torch.set_num_threads(1)  # there are as many processes as ranks
    world.begin(rank)
    for_good = ExitStack()
    draw_on_shards(for_good)
    save_by_ranks(for_good)
    flatten_by_ranks(for_good)
    # DDP has no timer for simulated devices, and would warn.
    compiled: Any = torch._C._distributed_c10d
    replaced(
        compiled.Logger, "set_runtime_stats_and_log", lambda logger: None
    ).apply()
    here = ForkedRank(
        rank,
        world.size,
        store=RemoteStore(requests),
        calls=calls,
        end=lambda value: _end_rank(rank, requests, Outcome(value)),
        left=[],
    )
    for_good.callback(
        replaced(c10d, "rendezvous", partial(_rendezvous, here)).apply()
    )
    for_good.pop_all()
    return here


def _rendezvous(
    here: ForkedRank, url: str, rank: int = -1, world_size: int = -1, **_: Any
) -> Iterator[tuple[RemoteStore, int, int]]:
    """Stand in for PyTorch's: the ranks know each other already.

    Whatever a program names, a server or a file, the rank has its number, the
    number of ranks and their store.

    Raises:
        ValueError: the program gives the rank another number, or another
            number of ranks.
    """
    if rank not in (-1, here.rank) or world_size not in (-1, here.world_size):
        raise ValueError(
            f"rank {here.rank} of {here.world_size} calls itself rank {rank} "
            f"of {world_size}"
        )
    yield here.store, here.rank, here.world_size


def _outcome(program: Program, here: ForkedRank) -> Outcome:
    """Return what a program returns, or how it has failed."""
    try:
        return Outcome(value=program(here))
    except RankEnded as ended:
        left = here.left[0] if here.left else None
        return Outcome(left, where=place_of(ended))
    except BaseException as error:
        left = here.left[0] if here.left else None
        return Outcome(left, _portable(error), place_of(error))


def place_of(error: BaseException) -> str:
    """Return the innermost line of the program that an error came from."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith((*LIBRARIES, OWN_FILES)):
            found = str(ProgramLine(code.co_filename, line, code.co_name))
    if not found and error.__cause__ is not None:  # such as a SystemExit
        return place_of(error.__cause__)
    return found


def _portable(error: BaseException) -> BaseException:
    """Return an error that another process can read."""
    is_known = type(error).__module__ in ("builtins", "torch")
    with suppress(Exception):
        if is_known and pickle.loads(pickle.dumps(error)):
            return error
    return WordsError(in_words(error))


# -- in the parent


def _wait_for_end(
    world: _OwnStates, ranks: Sequence[RankProcess], watch: ProcessWatch
) -> None:
    """Wait until all ranks have ended, or one of them by an error.

    Raises:
        IdleError: none has done anything for too long.
    """
    scheduler = world.scheduler
    scheduler.begin()
    while not scheduler.ended.wait(0.1):
        for rank, one in enumerate(ranks):
            if one.has_failed() and not scheduler.over:
                code = one.process.exitcode or 0
                scheduler.errors[rank] = WordsError(_gone(code))
        if scheduler.over:
            return
        watch.look()


def _pass_on(
    number: int, world: _OwnStates, ranks: Sequence[RankProcess]
) -> None:
    """Send ranks the signal that ends the launch, and let them end by it.

    As under torchrun, a script may save its work first.
    """
    scheduler = world.scheduler
    scheduler.are_told = True
    try:
        for one in ranks:
            with suppress(ProcessLookupError):
                os.kill(one.pid, number)
        scheduler.ended.wait(SAVE_WITHIN)
    finally:
        scheduler.are_told = False


def _gone(code: int) -> str:
    """Return how a process has ended, by its exit code."""
    if code == -signal.SIGKILL:
        hint = where_memory_ran_out()
        return f"its process was killed by SIGKILL, {hint}"
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process has ended with exit status {code}"


def _end(world: _OwnStates, ranks: Sequence[RankProcess]) -> None:
    """End the processes that have not ended, and the threads here.

    After a failure that is also what ranks have started: nobody waits for it.
    """
    scheduler = world.scheduler
    has_failed = scheduler.over or not scheduler.ended.is_set()
    if has_failed:
        if not scheduler.over:
            scheduler.stuck = "ended from outside"
        _tell(ranks, "another rank has failed")
    clock = _clock_of(ranks)
    while not scheduler.ended.wait(_LOOK_SECONDS):
        if clock.seconds() > END_WITHIN:
            _kill(ranks)  # a thread that listens to one hears its end
            scheduler.ended.wait()
    _hear(ranks)
    for one in ranks:
        clock = _clock_of([one])
        while one.process.exitcode is None and clock.seconds() < END_WITHIN:
            one.process.join(_LOOK_SECONDS)
    _kill(ranks)
    if has_failed:
        for one in ranks:
            _kill_group(one)


def _clock_of(ranks: Sequence[RankProcess]) -> RunClock:
    """Return a clock of the seconds that ranks have had from now on."""
    pids = [one.pid for one in ranks]
    return RunClock(lambda: read_uses(pids))


def _tell(ranks: Sequence[RankProcess], why: str) -> None:
    """Send the ranks that they are to end: the next answer says so."""
    for one in ranks:
        with suppress(OSError, DisconnectedError):
            write_message(one.connection, ("ended", why))


def _hear(ranks: Sequence[RankProcess]) -> None:
    """Take in how the ranks end to which no thread listens any more."""
    last = {one.connection: one for one in ranks if not one.proxy.outcome}
    clock = _clock_of(ranks)
    while last and clock.seconds() < END_WITHIN:
        for ready in wait(list(last), timeout=_LOOK_SECONDS):
            assert isinstance(ready, Connection)
            try:
                found = dict(read_message(ready))
            except (DisconnectedError, OSError):
                found = {"end": (Outcome(),)}
            if "end" in found:
                last.pop(ready).proxy.end(*found["end"])


def _kill(ranks: Sequence[RankProcess]) -> None:
    """Kill the processes that are left, and what they have started."""
    for one in ranks:
        if one.process.exitcode is None:
            _kill_group(one)
            one.process.join()


def _kill_group(rank: RankProcess) -> None:
    """Kill what is left of a rank and of the processes that it has started.

    Like torchrun, this spares a process that has begun a new session.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(rank.pid, signal.SIGKILL)


def _outcomes(
    ranks: Sequence[RankProcess], watch: ProcessWatch | None = None
) -> list[Outcome]:
    """Return how ranks have ended, and where a watch has seen them."""
    seen: dict[int, str] = {}
    for place, idle in (watch.last_places if watch else {}).items():
        seen |= dict.fromkeys(idle, str(place or ""))
    outcomes = []
    for rank, one in enumerate(ranks):
        outcome = one.proxy.outcome or Outcome()
        where = seen.get(rank) or outcome.where
        outcomes.append(outcome._replace(where=where))
    return outcomes


def _values(world: _OwnStates, ranks: Sequence[RankProcess]) -> list[Any]:
    """Return what the programs have returned.

    Raises:
        RankError: as for :func:`run_forked`.
    """
    outcomes = _outcomes(ranks)
    try:
        world.check(with_notes=False)
    except RuntimeError as error:
        raise RankError(str(error), outcomes) from error.__cause__
    return [outcome.value for outcome in outcomes]
