"""The store of the ranks: keys and values that one sets and others read.

A rank that waits for a key lets another rank run, as in an operation. So
does one that asks again while nothing has changed, such as in a loop that
waits for a counter.

What is read was set at some time of the simulated clock: who reads it goes on
no earlier. The messages to and from the store take no time.
"""

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from dpkit.ranks.scheduler import Scheduler
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.streams.sending import thread

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
        # PyTorch puts the name of a group before a key: "0//k".
        keys = [repr(key.split("//", 1)[-1]) for key in self.keys]
        missing = [k for k, key in zip(keys, self.keys) if not self._has(key)]
        what = "keys" if len(missing) > 1 else "key"
        return f"the store for {what} {', '.join(missing)}"

    @property
    def is_over(self) -> bool:
        return all(map(self._has, self.keys))

    def _has(self, key: str) -> bool:
        return bool(self.store.check([key]))


class RankStore(_Store):  # type: ignore[misc]
    """A store of ranks that take turns in one process.

    PyTorch's own, in C++, call the methods by the names that they have here. A
    time limit is not looked at: where no rank can go on, all end at once.

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

    def get(self, key: str) -> bytes:
        """Return the value of a key, once it is there."""
        self.wait([key])
        return self._read(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the values of keys, once all are there."""
        self.wait(keys)
        return [self._read(key) for key in keys]

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Give other ranks their turns until all keys are there."""
        awaited = _Keys(self._values, keys)
        if awaited.is_over:
            self._look(keys)
            return
        self._scheduler.wait(_own_rank(awaited.name), awaited)
        self._go_on_after(keys)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
        self._look(keys)
        return bool(self._values.check(keys))

    def getNumKeys(self) -> int:  # noqa: N802
        """Return the number of keys."""
        self._look([])
        return int(self._values.num_keys())

    def has_extended_api(self) -> bool:
        """Return True: there are append, multi_get and multi_set."""
        return True

    def clone(self) -> "RankStore":
        """Return the store itself, as there is no connection to copy."""
        return self

    # -- inside

    def _read(self, key: str) -> bytes:
        there = self._values.check([key])
        return bytes(self._values.get(key)) if there else b""

    def _change(self, key: str) -> None:
        rank = thread.rank
        if rank is not None:
            mark = simulation.clock.hosts.at_work.mark(rank)
            self._times[key] = max(mark, self._times.get(key, 0))
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

    def _go_on_after(self, keys: list[str]) -> None:
        """Move the host of this rank on to when keys were set."""
        rank = _own_rank("the store")
        for key in keys:
            mark = self._times.get(key, 0)
            simulation.clock.hosts.at_work.reach(rank, mark)


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
