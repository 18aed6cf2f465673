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
"""

import threading
from collections.abc import Callable

from dpkit.ranks.meetings import Meeting
from dpkit.sim.backward import raise_nothing, raise_outside


class Ended(BaseException):
    """Raised in a rank that cannot go on because of another.

    It is no ``Exception``: what a program does about its own errors should
    not keep the rank going.
    """


class Turns:
    """The turns of ``count`` ranks, each in its own thread.

    ``time`` tells how far the clock of a rank is. ``leave(rank)`` is called
    before another rank has its turn, ``enter(rank)`` when a rank has it.
    """

    def __init__(
        self,
        count: int,
        time: Callable[[int], int],
        enter: Callable[[int], None],
        leave: Callable[[int], None],
    ) -> None:
        self.count, self.running = count, 0  # the rank whose turn it is
        self.errors: dict[int, BaseException] = {}  # of ranks, the first first
        self.stuck = ""  # why nobody could go on
        self.ended = threading.Event()  # all ranks have
        self._time, self._enter, self._leave = time, enter, leave
        self._waiting: dict[int, Meeting] = {}
        self._threads: dict[int, int] = {}  # in which programs run, by rank
        self._stopped: set[int] = set()  # ranks that were told to
        self._telling = threading.Lock()
        self._left = set(range(count))  # ranks that have not returned
        self._signals = [threading.Semaphore(0) for _ in range(count)]

    def begin(self) -> None:
        """Give the first rank its turn."""
        self._signals[self.running].release()

    def run(self, rank: int, program: Callable[[int], None]) -> None:
        """Run a rank, in the thread that calls this."""
        self._threads[rank] = threading.get_ident()
        try:
            self._run(rank, program)
            with self._telling:  # from here on nobody tells it to end
                raise_nothing(self._threads.pop(rank))
        except Ended:  # it was told between the two
            self._threads.pop(rank, None)
        self._left.remove(rank)
        self._hand_on(rank)

    def _run(self, rank: int, program: Callable[[int], None]) -> None:
        try:
            self._take(rank)
            if not self.over:
                program(rank)
        except BaseException as error:
            first: BaseException | None = error
            while isinstance(first, Ended):  # in what cleans up after another
                first = first.__context__
            if first is not None:
                self.errors[rank] = first

    def stop(self) -> None:
        """Raise Ended in the rank whose turn it is, from outside, once."""
        with self._telling:
            self.stuck = self.stuck or "ended from outside"
            rank = self.running
            number = 0 if rank in self._stopped else self._threads.get(rank)
            if number and raise_outside(number, Ended):
                self._stopped.add(rank)

    @property
    def over(self) -> bool:
        """Whether the ranks are to end."""
        return bool(self.errors or self.stuck)

    def wait(self, rank: int, awaited: Meeting) -> None:
        """Give others their turns until it is over, or raise Ended."""
        if awaited.is_over and not self.over:
            return
        self._waiting[rank] = awaited
        self._hand_on(rank)
        self._take(rank)
        del self._waiting[rank]
        if self.over:
            self._stopped.add(rank)  # what cleans up is not told again
            raise_nothing(self._threads[rank])
            raise Ended

    def _hand_on(self, rank: int) -> None:
        self._leave(rank)
        if self._left:
            self.running = self._next()
            self._signals[self.running].release()
        else:
            self.ended.set()

    def _take(self, rank: int) -> None:
        self._signals[rank].acquire()
        self._enter(rank)

    def _next(self) -> int:
        """Return whose turn it is; where nobody's is, all are to end."""
        waiting = {r for r, what in self._waiting.items() if not what.is_over}
        if waiting >= self._left and not self.over:
            self.stuck = "; ".join(map(self._told, range(len(self._signals))))
        ready = self._left if self.over else self._left - waiting
        return min(ready, key=lambda rank: (self._time(rank), rank))

    def _told(self, rank: int) -> str:
        awaited = self._waiting.get(rank)
        doing = f"waits in {awaited.name}" if awaited else "has returned"
        return f"rank {rank} {doing}"
