"""What the ranks of a launch share, and what each has of its own.

Each thread has its own stream, device and issuers (``dpkit.sim``). Of what
PyTorch has once in a process, a rank gets its own in two ways. The registry
of process groups is one for each thread. The CPU's random numbers and the
rules of DTensor change with the turn: a rank goes on with its own.
"""

from threading import local
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from dpkit.ranks.meetings import Meeting
from dpkit.ranks.turns import Turns
from dpkit.sim.configuration import simulation


class Registry(local):
    """PyTorch's registry of process groups, another in each thread."""

    pg_config_info = c10d._World.pg_config_info

    def __init__(self) -> None:
        self.default_pg: Any = None
        self.group_count = 0
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, Any] = {}
        self.pg_group_ranks: dict[Any, Any] = {}
        self.pg_backend_config: dict[Any, Any] = {}
        self.tags_to_pg: dict[Any, Any] = {}
        self.pg_to_tag: dict[Any, Any] = {}
        self.pg_coalesce_state: dict[Any, Any] = {}
        self.pg_flight_recorder_hooks: dict[Any, Any] = {}
        self.comms: list[Any] = []


class World:
    """The ranks of a launch."""

    def __init__(self, size: int, algorithm: str) -> None:
        self.size, self.algorithm = size, algorithm
        self.turns = Turns(size, self._time, self._enter, self._leave)
        self._random = [torch.get_rng_state()] * size
        # Here, not above: it takes a second.
        from torch.distributed.tensor import DTensor

        self._dispatcher: Any = DTensor._op_dispatcher
        rules = self._dispatcher._custom_op_handlers
        self._rules = [dict(rules) for _ in range(size)]
        self._meetings: dict[Any, dict[Any, Meeting]] = {}

    def meetings_of(self, name: str, ranks: tuple[int, ...]) -> dict[Any, Any]:
        """Return what the ranks of a group are at."""
        return self._meetings.setdefault((name, ranks), {})

    def forget(self) -> None:
        """Drop operations to which some ranks have not come."""
        for meetings in self._meetings.values():
            meetings.clear()

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
