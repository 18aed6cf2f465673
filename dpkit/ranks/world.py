"""What the ranks of a launch share, and what each has for itself.

Each thread has its own stream, device and issuers (``dpkit.sim``). PyTorch has
other things once in a process; a rank gets its own in two ways. The registry
of process groups is one for each thread. The CPU's random numbers and the
rules of DTensor change with the turn: a rank goes on with its own.
"""

from threading import local
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.distributed import distributed_c10d as c10d

from dpkit.ranks.meetings import Meeting
from dpkit.ranks.turns import Turns
from dpkit.sim.configuration import simulation
from dpkit.sim.needed import REGISTRY


class Registry(local):
    """PyTorch's registry of process groups, another in each thread."""

    pg_config_info = c10d._World.pg_config_info

    def __init__(self) -> None:
        for name, make in REGISTRY.items():
            setattr(self, name, make())


class World:
    """The ranks of a launch."""

    def __init__(self, size: int, algorithm: str) -> None:
        self.size, self.algorithm = size, algorithm
        self.turns = Turns(size, self._time, self._enter, self._leave)
        self._random = [torch.get_rng_state()] * size
        # Here, not above: it takes a second.
        from torch.distributed.tensor import DTensor

        # What torch 2.11 makes for it ends with the thread that comes first.
        with FakeTensorMode():
            pass

        self._dispatcher: Any = DTensor._op_dispatcher
        rules = self._dispatcher._custom_op_handlers
        self._rules = [dict(rules) for _ in range(size)]
        self._meetings: dict[Any, dict[Any, Meeting]] = {}

    def meetings_of(self, name: str, ranks: Any) -> dict[Any, Meeting]:
        """Return what the ranks of a group are at."""
        return self._meetings.setdefault((name, ranks), {})

    def close(self) -> None:
        """Raise what went wrong, if anything."""
        # PyTorch may keep a group, and so this: neither may keep tensors.
        errors, self.turns.errors = self.turns.errors, {}
        left: list[str] = []
        for meetings in self._meetings.values():
            left += [meeting.name for meeting in meetings.values()]
            meetings.clear()
        for rank, error in errors.items():
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            raise RuntimeError(f"rank {rank} failed ({told})") from error
        if self.turns.stuck:
            raise RuntimeError(f"no rank can go on ({self.turns.stuck})")
        if left:
            raise RuntimeError(f"a rank left out {left[0]}")

    def _time(self, rank: int) -> int:
        """Return how far the host of a rank is, in picoseconds."""
        return simulation.clock.hosts.python.mark(rank)

    def _enter(self, rank: int) -> None:
        torch.set_rng_state(self._random[rank])
        self._dispatcher._custom_op_handlers = self._rules[rank]

    def _leave(self, rank: int) -> None:
        self._random[rank] = torch.get_rng_state()
        self._rules[rank] = self._dispatcher._custom_op_handlers
        simulation.clock.settle()  # what backward has issued so far
