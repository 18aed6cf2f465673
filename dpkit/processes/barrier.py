"""A barrier of processes that share memory: counters that all can read.

::

    rank 0   [ 5 ]      each rank adds one to its own counter, and waits
    rank 1   [ 5 ]      until no counter is behind its own: here the ranks
    rank 2   [ 4 ]      0 and 1 wait for rank 2

No rank writes where another writes, so no instruction has to be atomic
beyond an aligned store of eight bytes. What a rank wrote before a barrier is
seen by the others after it, because x86-64 shows the stores of a core to the
others in the order in which they were issued, and loads are done in order.
Non-temporal stores, by which large blocks may be copied, are the exception:
whoever uses them, such as glibc's memcpy, puts a fence behind them. No other
processor is relied on for that: there the ranks meet by messages.

A rank that gives up, because others are late or it is interrupted, writes
``GAVE_UP`` in place of its counter. No wait of the others passes that.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

KEEPS_ORDER = ("x86_64", "AMD64")
GAVE_UP = -1  # in place of a counter; it never comes up to one
LINE = 8  # integers in a cache line of 64 bytes
# A rank first looks without a pause, then lets others run, then sleeps.
LOOKS, YIELD_SECONDS, NAP_SECONDS = 2000, 0.02, 0.0005


class Barrier:
    """Let the ranks of a group wait for each other in shared memory.

    Args:
        counters: ``world_size`` lines of ``LINE`` integers, zero at first,
            shared by all ranks; of each line the first is the counter.
        group: The process group.
        timeout_seconds: How long to wait for the others.
    """

    def __init__(
        self,
        counters: memoryview,
        group: dist.ProcessGroup,
        timeout_seconds: float,
    ) -> None:
        self._counters, self._group = counters, group
        self._timeout_seconds = timeout_seconds
        self._rank, self._world_size = dist.get_rank(group), group.size()
        self._others = [
            LINE * r for r in range(self._world_size) if r != self._rank
        ]
        self._count = 0
        self._in_memory = platform.machine() in KEEPS_ORDER
        has_cores = self._world_size <= (os.cpu_count() or 1)
        self._looks = LOOKS if has_cores else 1

    def wait(self) -> None:
        """Wait until all ranks have come.

        Raises:
            TimeoutError: some ranks did not come in time.
            RuntimeError: some ranks gave up.
        """
        if not self._in_memory:
            self._meet()
            return
        self._count += 1
        count, counters = self._count, self._counters
        counters[LINE * self._rank] = count
        for place in self._others:
            for _ in range(self._looks):
                if counters[place] >= count:
                    break
            else:
                self._wait_for(place)

    def give_up(self) -> None:
        """Let all waits of the others fail, those to come included."""
        self._counters[LINE * self._rank] = GAVE_UP

    def _meet(self) -> None:
        self._check_that_none_gave_up()
        limit = timedelta(seconds=self._timeout_seconds)
        try:
            dist.monitored_barrier(self._group, limit, wait_all_ranks=True)
        except RuntimeError as error:  # it names the ranks as well
            raise TimeoutError(str(error)) from error

    def _wait_for(self, place: int) -> None:
        """Wait longer for one rank; let others have the core meanwhile."""
        start = time.monotonic()
        while self._counters[place] < self._count:
            self._check_that_none_gave_up()
            waited = time.monotonic() - start
            if waited < YIELD_SECONDS and hasattr(os, "sched_yield"):
                os.sched_yield()
            else:
                time.sleep(NAP_SECONDS)
            if waited > self._timeout_seconds:
                raise TimeoutError(self._who_is_missing())

    def _who_is_missing(self) -> str:
        return (
            "some ranks did not come to the barrier in time (ranks: "
            f"{self._missing()} of {self._world_size}, timeout_seconds: "
            f"{self._timeout_seconds:g})"
        )

    def _missing(self) -> str:
        return self._names(lambda count: GAVE_UP < count < self._count)

    def _names(self, chosen: Callable[[int], bool]) -> str:
        places = [p for p in self._others if chosen(self._counters[p])]
        return ", ".join(str(place // LINE) for place in places)

    def _check_that_none_gave_up(self) -> None:
        gone = self._names(lambda count: count == GAVE_UP)
        if gone:
            raise RuntimeError(
                "some ranks gave up, in this call or before (ranks: "
                f"{gone} of {self._world_size}, had not come: "
                f"{self._missing() or 'none'})"
            )
