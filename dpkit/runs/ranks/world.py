"""What the ranks of a launch share, and what each has for itself.

Each thread has its own stream, device, issuers and registry of process groups
(``dpkit.sim``). PyTorch has other things once in a process. These change with
the turn: random numbers, also Python's and NumPy's, the default dtype, the
rules of DTensor and what it draws shards by, the hooks of all modules, and
what a block of ``context_parallel`` sets.
"""

from typing import Any

from dpkit.runs.ranks.error_words import in_words
from dpkit.runs.ranks.pending import PendingCollective
from dpkit.runs.ranks.scheduler import Scheduler
from dpkit.runs.ranks.thread_state import ThreadState
from dpkit.sim.devices import simulation


def _described(error: BaseException, with_notes: bool) -> str:
    """Return an error in words, with the one that was handled before it."""
    described = in_words(error)
    if with_notes:
        described = ", ".join([described, *getattr(error, "__notes__", ())])
    if error.__suppress_context__ or error.__context__ is None:
        return described
    return f"{described}; after {_described(error.__context__, with_notes)}"


class World:
    """What the ranks of a launch share.

    Args:
        size: The number of ranks.
        algorithm: How collectives are sent, such as "ring" or "library".
        running: The number of ranks that run; None: all.
    """

    def __init__(
        self, size: int, algorithm: str, running: int | None = None
    ) -> None:
        self.size = size
        self.algorithm = algorithm
        count = size if running is None else running
        self._states = ThreadState.of_ranks(count)
        self.scheduler = Scheduler(
            count, time=self._time, enter=self._enter, leave=self._leave
        )
        # By group: its collectives, by pair and number.
        self._pending: dict[Any, dict[Any, PendingCollective]] = {}
        # By rank and channel: the group that sends on it.
        self._channels: dict[tuple[int, str], str] = {}
        self._groups: list[Any] = []  # of all ranks

    def add(
        self, group: Any, name: str, ranks: Any
    ) -> dict[Any, PendingCollective]:
        """Take in the group of a rank.

        Return its pending collectives, in a dict that the objects of one group
        on all ranks share.
        """
        self._groups.append(group)
        return self._pending.setdefault((name, ranks), {})

    def channel_of(self, rank: int, group: str, wanted: str) -> str:
        """Return the name of a channel that no other group of a rank has.

        It is the wanted one, or that with a number: "tp", "tp 2".
        """
        # Two meshes of one rank may each have a dimension called "tp".
        channel = wanted
        count = 1
        while self._channels.setdefault((rank, channel), group) != group:
            count += 1
            channel = f"{wanted} {count}"
        return channel

    def check(self, with_notes: bool = True) -> None:
        """Raise RuntimeError if the launch has failed.

        It has if a rank has raised, if none could go on, or if a rank has left
        out a collective.

        Args:
            with_notes: Whether it also says the notes of an error.
        """
        left = [
            f"a rank left out {collective}"
            for collectives in self._pending.values()
            for collective in collectives.values()
        ]
        stuck = self.scheduler.stuck
        what = [f"no rank can go on ({stuck})"] if stuck else []
        rank, error = next(iter(self.scheduler.errors.items()), (0, None))
        if error is not None:
            described = _described(error, with_notes)
            what.append(f"rank {rank} failed ({described})")
        if what or left:
            raise RuntimeError("; ".join(what or left[:1])) from error

    def free(self) -> None:
        """Drop every reference to tensors, because PyTorch may keep this.

        DTensor caches meshes. A mesh has its groups, and a group its world.
        """
        for group in self._groups:
            group.free()
        self.scheduler.errors.clear()  # a traceback has variables
        self._states.clear()  # a hook may have a module

    def _time(self, rank: int) -> int:
        """Return the time on the clock of a rank's host, in picoseconds."""
        return simulation.whole_clock.hosts.python.mark(rank)

    def _enter(self, rank: int) -> None:
        """Bring back what PyTorch has once, as this rank has left it."""
        self._states[rank].restore()

    def _leave(self, rank: int) -> None:
        """Keep what PyTorch has once, for the next turn of this rank."""
        self._states[rank] = ThreadState.now()
        simulation.whole_clock.flush()  # what backward has issued so far
