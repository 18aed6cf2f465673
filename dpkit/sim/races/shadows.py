"""The accesses to a storage that matter to later ones."""

import weakref
from typing import NamedTuple

import torch

from dpkit.sim.clock.order import Past
from dpkit.sim.clock.queues import Stream
from dpkit.sim.clock.record import Row, Use
from dpkit.sim.places import SourcePlace
from dpkit.sim.races.extents import Extent


class Issued(NamedTuple):
    """An operation that has been issued to a stream."""

    name: str
    place: SourcePlace
    stream: Stream
    number: int  # in its stream

    def is_in(self, past: Past) -> bool:
        """Return whether it has ended for what has this past.

        A past has, by stream, the number of the last operation that it waits
        for.
        """
        return past.get(self.stream, 0) >= self.number


class Access(NamedTuple):
    """What an operation does to a piece of memory."""

    operation: Issued
    writes: bool
    extent: Extent

    def races(self, writes: bool, extent: Extent, past: Past) -> bool:
        """Return whether it races with a later access of this past."""
        if not (writes or self.writes) or self.operation.is_in(past):
            return False
        return self.extent.overlaps(extent)

    # A later read replaces an earlier read, and a later write replaces
    # anything, if it comes after it and has all of its bytes.

    def replaces(self, old: "Access", past: Past) -> bool:
        """Return whether this access makes the old one needless.

        So it is if all that races with the old one races with this, too.
        """
        if not (self.writes or not old.writes):
            return False
        return old.operation.is_in(past) and self.extent.contains(old.extent)

    def use(self, row: Row) -> Use:
        """Return what a race says of it; ``row`` is that of its stream."""
        operation = self.operation
        return use(
            "writes" if self.writes else "reads",
            operation.name,
            row,
            operation.place,
        )


def use(what: str, name: str, row: Row, place: SourcePlace) -> Use:
    """Return what a race says of an access, or of memory that was freed.

    Args:
        what: "reads", "writes" or "frees".
        name: The name of the operation.
        row: The row of a timeline in which it is.
        place: The line of the program that has issued it.
    """
    device, stream = row
    return Use(
        what,
        name,
        device=device,
        stream=stream,
        line=place.described(),
        code=place.code(),
    )


class Shadow(weakref.ref[torch.UntypedStorage]):
    """A storage, as long as it is there."""

    __slots__ = ("accesses", "key", "owner", "recorded")
    key: int
    owner: Stream | None  # in which it was made, if that was in the trace
    accesses: list[Access]  # that no later one replaces
    recorded: set[Stream]  # those that record_stream has named
