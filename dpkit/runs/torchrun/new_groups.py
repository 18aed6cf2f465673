"""Groups that not all ranks make.

``new_group`` is for all ranks, also for those that are no members: each counts
the groups, and their numbers are the names by which members find each other::

    rank     0       1       2       3
    calls    0, 1    0, 1    2, 3    2, 3     two groups of one name
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from torch.distributed import distributed_c10d as c10d

from dpkit.runs.torchrun.watchers import Watcher
from dpkit.sim import places
from dpkit.sim.changes import replaced

_ADVICE = (
    "all ranks have to call new_group for each group, also those that are no "
    "members"
)


class MadeGroup(NamedTuple):
    """A group that a rank has made, or has seen others make."""

    ranks: str
    line: str  # of the script


class NewGroups(Watcher):
    """Groups that are made by their members alone."""

    looks_for = "groups that their members alone make"
    needs_ranks = needs_end = True

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._made: list[MadeGroup] = []

    def begin(self, stack: ExitStack) -> None:
        """Look at what ``new_group`` is given."""
        make: Any = c10d._new_group_with_tag

        def watched(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if ranks is not None:
                ranks = sorted(ranks)  # as PyTorch takes them
            if not kwargs.get("use_local_synchronization"):
                self._make(_named(ranks))
            return make(ranks, *args, **kwargs)

        change = replaced(c10d, "_new_group_with_tag", watched)
        stack.callback(change.apply())

    def _make(self, ranks: str) -> None:
        """Compare a group with what the first rank has made in its place.

        Raises:
            RuntimeError: it is another group.
        """
        made = MadeGroup(ranks, places.here().described())
        key = f"dpkit/new_group/{len(self._made)}"
        self._made.append(made)
        own = f"{ranks}|{self.rank}|{made.line}"
        store: Any = c10d._get_default_store()
        stored = bytes(store.compare_set(key, "", own)).decode()
        theirs, rank, line = stored.split("|", 2)
        if theirs != ranks:
            raise RuntimeError(
                f"ranks make different groups (rank {rank}: {theirs}, {line}; "
                f"rank {self.rank}: {ranks}, {made.line}); {_ADVICE}"
            )

    def for_comparison(self) -> list[MadeGroup]:
        """Return the groups that this rank has made."""
        return self._made

    @classmethod
    def compare(cls, kept: Mapping[int, list[MadeGroup]]) -> list[str]:
        """Return a sentence for the first group that some have not made."""
        most = max(kept.values(), key=len)
        fewest = min(map(len, kept.values()))
        if len(most) == fewest:
            return []
        absent = [rank for rank, made in kept.items() if len(made) == fewest]
        listed = ", ".join(map(str, absent))
        whose = f"rank {listed} has" if len(absent) == 1 else f"{listed} have"
        if len(absent) > 1:
            whose = f"ranks {whose}"
        missing = most[fewest]
        return [
            f"{whose} not made the group of ranks {missing.ranks} "
            f"({missing.line}); {_ADVICE}"
        ]


def _named(ranks: list[int] | None) -> str:
    """Return the ranks of a group; who is alone in one needs no others."""
    if ranks is None:
        return "all"
    return str(ranks) if len(ranks) > 1 else "[one alone]"
