"""The store of the ranks: keys and values that one sets and others read.

A rank that waits for a key lets another rank run, as in an operation. So
does one that asks again while nothing has changed, such as in a loop that
waits for a counter.

What is read was set at some time of the simulated clock: who reads it goes on
no earlier. The messages to and from the store take no time.

A rank waits as long as PyTorch's store does: until the time limit of its call,
or else that of the store. The seconds are those of the simulated clock. Then
it has an error, which it may catch, and the others go on.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from dpkit.runs.ranks.scheduler import Scheduler, TimeLimit
from dpkit.sim.clock import SECOND
from dpkit.sim.devices import simulation
from dpkit.sim.streams import thread
from dpkit.units import show_seconds

# Their annotations differ by version, and say str where bytes will do.
_Store: Any = c10d.Store
_HashStore: Any = vars(dist)["HashStore"]


@dataclass
class _Keys:
    """Keys that a rank waits for."""

    store: Any
    keys: list[str]

    @property
    def name(self) -> str:
        missing = [_shown(key) for key in self.keys if not self._has(key)]
        what = "keys" if len(missing) > 1 else "key"
        return f"the store for {what} {', '.join(missing)}"

    @property
    def is_over(self) -> bool:
        return all(map(self._has, self.keys))

    def _has(self, key: str) -> bool:
        return bool(self.store.check([key]))


def _shown(key: str) -> str:
    """Return a key as the program has it.

    PyTorch puts the name of a group before it: "0//k".
    """
    return repr(key.split("//", 1)[-1])


class KeyStore(_Store):  # type: ignore[misc]
    """A store as PyTorch's, wherever its keys are."""

    def has_extended_api(self) -> bool:
        """Return True: there are append, multi_get and multi_set."""
        return True

    def clone(self) -> "KeyStore":
        """Return the store itself, as there is no connection to copy."""
        return self


class RankStore(KeyStore):
    """A store of ranks that take turns in one process.

    PyTorch's own, in C++, call the methods by the names that they have here.
    The process of a rank has a ``RemoteStore``, which asks for the same
    (``dpkit.runs.forked.store``).

    Where one program runs for several ranks, what it adds and appends is added
    and appended for each of them.
    """

    def __init__(
        self, scheduler: Scheduler, ranks_per_program: int = 1
    ) -> None:
        super().__init__()
        self._ranks_per_program = ranks_per_program
        self._changes = 0  # how many there were
        self._scheduler = scheduler
        self._values = _HashStore()
        self._times: dict[str, int] = {}  # when keys were set, in picoseconds
        self._first_times: dict[str, int] = {}  # since when they are there
        self._seen: dict[int, int] = {}  # changes when a rank last looked

    # -- who changes it

    def set(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._values.set(key, value)
        self._change(key)

    def append(self, key: str, value: bytes) -> None:
        """Add to the end of a value."""
        self._values.append(key, value * self._ranks_per_program)
        self._change(key)

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        """Set several keys."""
        for key, value in zip(keys, values):
            self.set(key, value)

    def deleteKey(self, key: str) -> bool:  # noqa: N802
        """Take a key out; return whether it was there."""
        was_there = bool(self._values.delete_key(key))
        if was_there:
            self._change(key)
            self._first_times.pop(key, None)
        return was_there

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which begins at 0; return the sum."""
        if amount == 0:
            self._look([key])
        total = int(self._values.add(key, amount * self._ranks_per_program))
        if amount:
            self._change(key)
        return total

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Set a key if its value is the expected one; return what it is."""
        self._look([key])
        before = self._read(key)
        found: bytes = self._values.compare_set(key, expected, value)
        if self._read(key) != before:
            self._change(key)
        return found

    # -- who reads it

    def get(self, key: str, timeout: timedelta | None = None) -> bytes:
        """Return the value of a key, once it is there."""
        self.wait([key], timeout)
        return self._read(key)

    def multi_get(
        self, keys: list[str], timeout: timedelta | None = None
    ) -> list[bytes]:
        """Return the values of keys, once all are there."""
        self.wait(keys, timeout)
        return [self._read(key) for key in keys]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Give other ranks their turns until all keys are there.

        Args:
            keys: What the rank waits for.
            timeout: For how long it waits; None: as long as the store says.

        Raises:
            DistStoreError: the time is up.
        """
        awaited = _Keys(self._values, keys)
        allowed = self.timeout if timeout is None else timeout
        if thread.rank is None and awaited.is_over:
            return
        rank = _own_rank(awaited.name)
        hosts = simulation.whole_clock.hosts
        seconds = allowed.total_seconds()
        limit = TimeLimit(
            mark=hosts.at_work.mark(rank) + round(SECOND * seconds),
            wall=time.monotonic() + seconds,
        )
        try:
            if awaited.is_over:
                self._look([])
            self._scheduler.wait(rank, awaited, limit)
            self._check_in_time(keys, limit.mark)
        except TimeoutError as late:
            hosts.at_work.reach(rank, limit.mark)
            named = ", ".join(f"/{key}" for key in keys)
            raise dist.DistStoreError(
                f"wait timeout after {round(1000 * seconds)}ms, keys: {named} "
                f"({late})"
            ) from None
        self._go_on_after(keys)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
        self._look(keys)
        return bool(self._values.check(keys))

    def getNumKeys(self) -> int:  # noqa: N802
        """Return the number of keys."""
        self._look([])
        return int(self._values.num_keys())

    # -- inside

    def _read(self, key: str) -> bytes:
        there = self._values.check([key])
        return bytes(self._values.get(key)) if there else b""

    def _change(self, key: str) -> None:
        rank = thread.rank
        if rank is not None:
            mark = simulation.whole_clock.hosts.at_work.mark(rank)
            self._times[key] = max(mark, self._times.get(key, 0))
            self._first_times.setdefault(key, mark)
            if self._seen.get(rank) == self._changes:
                self._seen[rank] += 1  # its own change is nothing new to it
        self._changes += 1

    def _look(self, keys: list[str]) -> None:
        """Make others run if nothing has changed since this rank looked.

        Its host goes on no earlier than the keys were set.
        """
        rank = thread.rank
        if rank is None:
            return
        if self._seen.get(rank) == self._changes:
            self._scheduler.let_others(rank)
        self._seen[rank] = self._changes
        self._go_on_after(keys)

    def _check_in_time(self, keys: list[str], limit: int) -> None:
        """Raise TimeoutError if a key has come after a mark of the clock."""
        for key in keys:
            late = self._first_times.get(key, 0) - limit
            if late > 0:
                raise TimeoutError(
                    f"key {_shown(key)} was set {show_seconds(late / SECOND)} "
                    "later, on the simulated clock"
                )

    def _go_on_after(self, keys: list[str]) -> None:
        """Move the host of this rank on to when keys were set."""
        rank = _own_rank("the store")
        for key in keys:
            mark = self._times.get(key, 0)
            simulation.whole_clock.hosts.at_work.reach(rank, mark)


def _own_rank(awaited: str) -> int:
    """Return the rank whose program calls.

    Raises:
        RuntimeError: another thread calls, which is no rank and cannot wait.
    """
    if thread.rank is None:
        raise RuntimeError(
            "only the program of a rank can wait in the store, in its own "
            f"thread (it would wait in {awaited})"
        )
    return thread.rank
