"""What the ranks of a launch share, and what each has for itself.

Each thread has its own stream, device, issuers and registry of process groups
(``dpkit.sim``). PyTorch has other things once in a process. These change with
the turn: random numbers, also Python's and NumPy's, the default dtype, the
rules of DTensor and what it draws shards by, the hooks of all modules.
"""

from typing import Any

from dpkit.ranks.meetings import Meeting
from dpkit.ranks.turns import Turns
from dpkit.sim.configuration import simulation
from dpkit.sim.needed import ThreadState


def _told(error: BaseException) -> str:
    """Return an error in words, with the one that was handled before it."""
    told = f"{type(error).__name__}: {_text(error)}".rstrip(": ")
    told = ", ".join([told, *map(str, getattr(error, "__notes__", ()))])
    before = None if error.__suppress_context__ else error.__context__
    return told if before is None else f"{told}; after {_told(before)}"


def _text(error: BaseException) -> str:
    """Return the text of an error, which may fail to tell it."""
    try:
        return str(error)
    except Exception as failed:
        return f"its text fails with {type(failed).__name__}"


class World:
    """The ranks of a launch."""

    def __init__(self, size: int, algorithm: str) -> None:
        self.size, self.algorithm = size, algorithm
        self._states = ThreadState.of_ranks(size)
        enter = lambda rank: self._states[rank].restore()  # noqa: E731
        self.turns = Turns(size, self._time, enter, self._leave)
        self._meetings: dict[Any, dict[Any, Meeting]] = {}
        self._ways: dict[tuple[int, str], str] = {}  # rank, way -> its group
        self._groups: list[Any] = []  # of all ranks

    def add(self, group: Any, name: str, ranks: Any) -> dict[Any, Meeting]:
        """Take in the group of a rank; return what all its ranks are at."""
        self._groups.append(group)
        return self._meetings.setdefault((name, ranks), {})

    def way_of(self, rank: int, group: str, wanted: str) -> str:
        """Return a name that no other group of this rank has for its way."""
        # Two meshes of one rank may each have a dimension called "tp".
        way, count = wanted, 1
        while self._ways.setdefault((rank, way), group) != group:
            count += 1
            way = f"{wanted} {count}"
        return way

    def check(self) -> None:
        """Raise what went wrong, if anything."""
        left = [
            f"a rank left out {meeting}"
            for meetings in self._meetings.values()
            for meeting in meetings.values()
        ]
        stuck = self.turns.stuck
        what = [f"no rank can go on ({stuck})"] if stuck else []
        rank, error = next(iter(self.turns.errors.items()), (0, None))
        if error is not None:
            what.append(f"rank {rank} failed ({_told(error)})")
        if what or left:
            raise RuntimeError("; ".join(what or left[:1])) from error

    def free(self) -> None:
        """Drop every reference to tensors, because PyTorch may keep this.

        DTensor caches meshes. A mesh has its groups, and a group its world.
        """
        for group in self._groups:
            group.free()
        self.turns.errors.clear()  # a traceback has variables
        self._states.clear()  # a hook may have a module

    def _time(self, rank: int) -> int:
        """Return how far the host of a rank is, in picoseconds."""
        return simulation.clock.hosts.python.mark(rank)

    def _leave(self, rank: int) -> None:
        self._states[rank] = ThreadState.now()
        simulation.clock.settle()  # what backward has issued so far
