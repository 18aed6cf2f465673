"""Ranks as threads that take turns: one runs, the others wait.

A rank goes on until it would have to wait for another. Then the next is, of
those that need not wait, the one whose simulated clock is earliest::

    clock of rank     0    1    2
                      0    0    0     rank 0 runs, up to its allreduce
                      9    0    0     rank 1, up to its allreduce
                      9    9    0     rank 2: the allreduce is complete
                      9    9   12     rank 0 goes on

So the order is the same in every run, and nothing that ranks share is ever
changed by two of them at once. Where nobody can go on, every rank ends, with
the reason for which each has waited.

A rank may wait with a time limit. It is up where no other can go on, or where
all that can are later on their clocks::

    clock of rank     0    1
                      0    0     rank 0 waits for a key, for at most 5
                      5    9     rank 1 has slept: what it sets comes too late
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from dpkit.sim.tensors import (
    let_traced_threads_go_on,
    raise_nothing,
    raise_outside,
)


class Awaited(Protocol):
    """What a rank waits for."""

    @property
    def name(self) -> str:
        """What errors call it: "allreduce number 3 of group 0"."""

    @property
    def is_over(self) -> bool:
        """Whether nobody has to wait for it any more."""


class TimeLimit(NamedTuple):
    """Until when a rank waits."""

    mark: int  # on its simulated clock, in picoseconds
    wall: float  # on the wall, by time.monotonic()


class Ended(BaseException):
    """Raised in a rank that cannot go on because of another.

    It is no ``Exception``: what a program does about its own errors should
    not keep the rank going.
    """


class Scheduler:
    """Gives one rank after another its turn, each in its own thread.

    Args:
        count: The number of ranks.
        time: Return how far the clock of a rank is, in picoseconds.
        enter: Called with a rank when it gets its turn, in its thread.
        leave: Called with a rank before another gets its turn.
    """

    def __init__(
        self,
        count: int,
        time: Callable[[int], int],
        enter: Callable[[int], None],
        leave: Callable[[int], None],
    ) -> None:
        self.count = count
        self.running = 0  # the rank whose turn it is
        self.errors: dict[int, BaseException] = {}  # of ranks, the first first
        self.stuck = ""  # why nobody could go on
        self.are_told = False  # each rank was told to end, and ends by itself
        self.ended = threading.Event()  # all ranks have
        self.number = 0  # of the turn: how many there were before it
        self.threads: dict[int, int] = {}  # in which programs run, by rank
        self.left_behind: set[int] = set()  # ranks that get no turn any more
        self._time = time
        self._enter = enter
        self._leave = leave
        self._waiting: dict[int, Awaited] = {}
        self._limits: dict[int, TimeLimit] = {}  # of those that wait
        self._late: dict[int, str] = {}  # whose time is up -> who waits where
        self._asking: list[int] = []  # ranks that go on after all others
        self._stopped: set[int] = set()  # ranks that were asked to end
        self._turn_lock = threading.Lock()  # held, too, where the turn changes
        self._left = set(range(count))  # ranks that have not returned
        self._signals = [threading.Semaphore(0) for _ in range(count)]

    def begin(self) -> None:
        """Give the first rank its turn."""
        self._signals[self.running].release()

    def run(self, rank: int, program: Callable[[int], None]) -> None:
        """Run the program of a rank to its end, in the thread that calls this.

        It begins when the rank has its turn. An error is kept in ``errors``.
        """
        self.threads[rank] = threading.get_ident()
        try:
            self._run(rank, program)
            with self._turn_lock:  # from here on nobody asks it to end
                raise_nothing(self.threads.pop(rank))
        except Ended:  # it was asked between the two
            self.threads.pop(rank, None)
        with suppress(Ended):  # it was left behind
            self._hand_on(rank, for_ever=True)

    def _run(self, rank: int, program: Callable[[int], None]) -> None:
        try:
            self._take(rank)
            if not self.over:
                program(rank)
        except BaseException as error:
            first: BaseException | None = error
            while isinstance(first, Ended):  # in what cleans up after another
                first = first.__context__
            # What was left behind ends after the launch: nobody asks for it.
            if first is not None and rank not in self.left_behind:
                self.errors[rank] = first
            del first  # or its traceback would keep it, with this function

    def stop(self) -> None:
        """Raise Ended in the rank whose turn it is, from outside, once."""
        with self._turn_lock:
            self.stuck = self.stuck or "ended from outside"
            rank = self.running
            number = 0 if rank in self._stopped else self.threads.get(rank)
            if number and raise_outside(number, Ended):
                self._stopped.add(rank)

    def leave_behind(self, number: int) -> None:
        """Go on without the rank whose turn ``number`` is, if it still has it.

        It learns of the end when its thread wakes, and gets no turn any more.
        """
        with self._turn_lock:
            if number == self.number and not self.ended.is_set():
                self.left_behind.add(self.running)
                self._left.remove(self.running)
                let_traced_threads_go_on()
                self._give_turn()

    @property
    def over(self) -> bool:
        """Whether the ranks are to end.

        An error of one ends the others, unless they are ending already.
        """
        return bool(self.stuck or (self.errors and not self.are_told))

    def wait(
        self, rank: int, awaited: Awaited, limit: TimeLimit | None = None
    ) -> None:
        """Make other ranks run until what this rank waits for is over.

        Raises:
            Ended: the ranks are to end, as one has failed or none can go on.
            TimeoutError: the time limit is up; it says where each rank waits.
        """
        if awaited.is_over and not self.over:
            return
        self._waiting[rank] = awaited
        if limit is not None:
            self._limits[rank] = limit
        try:
            self._pause(rank)
        finally:
            del self._waiting[rank]
            self._limits.pop(rank, None)
        if rank in self._late:
            raise TimeoutError(self._late.pop(rank))

    def let_others(self, rank: int) -> None:
        """Give others their turns until none of them can go on.

        So a rank may ask again and again whether something has happened.
        """
        self._asking.append(rank)
        try:
            self._pause(rank)
        finally:
            self._asking.remove(rank)

    def _pause(self, rank: int) -> None:
        self._hand_on(rank)
        self._take(rank)
        if self.over:
            self._stopped.add(rank)  # what cleans up is not asked again
            raise_nothing(self.threads[rank])
            raise Ended

    def _hand_on(self, rank: int, for_ever: bool = False) -> None:
        """Give another rank its turn.

        Raises:
            Ended: the rank was left behind, and its turn is taken already.
        """
        with self._turn_lock:
            if rank in self.left_behind:
                raise Ended
            if for_ever:
                self._left.remove(rank)
            self._leave(rank)
            self._give_turn()

    def _give_turn(self) -> None:
        if self._left:
            self.running = self._next()
            self.number += 1
            self._signals[self.running].release()
        else:
            self.ended.set()

    def _take(self, rank: int) -> None:
        self._signals[rank].acquire()
        self._enter(rank)

    def _next(self) -> int:
        """Return the rank that is next: of those ready, the earliest.

        Where none is, ``stuck`` says why, and all ranks get turns to end.
        """
        waiting = {r for r, what in self._waiting.items() if not what.is_over}
        if self.over:
            ready = self._left
        else:
            ready = self._left - waiting - {*self._asking}
            late = self._first_late(waiting, ready)
            if late is not None:
                self._late[late] = self._states()
                return late
        if ready:
            return min(ready, key=lambda rank: (self._time(rank), rank))
        if self._asking:
            return self._asking[0]  # who has asked first
        self.stuck = self._states()
        return self._next()

    def _first_late(self, waiting: set[int], ready: set[int]) -> int | None:
        """Return the rank whose time limit is up first, if there is one.

        What others do comes too late for it if all that can go on are later
        than the limit. The clock of a rank that only polls may stand still:
        then the time on the wall counts.
        """
        others = map(self._time, ready | {*self._asking})
        earliest = min(others, default=math.inf)
        now = time.monotonic()
        late = [
            (limit.mark, rank)
            for rank, limit in self._limits.items()
            if rank in waiting
            and (limit.mark < earliest or (not ready and limit.wall <= now))
        ]
        return min(late)[1] if late else None

    def _states(self) -> str:
        """Return what all ranks do, in words."""
        return "; ".join(map(self._state_of, range(len(self._signals))))

    def _state_of(self, rank: int) -> str:
        awaited = self._waiting.get(rank)
        if awaited:
            doing = f"waits in {awaited.name}"
        elif rank in self._asking:
            doing = "polls, or waits outside of torch.distributed"
        else:
            doing = "goes on" if rank in self._left else "has returned"
        return f"rank {rank} {doing}"
