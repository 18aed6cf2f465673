"""A segment of a tensor and its places in shared memory, as one rank sees it.

The three steps of an allreduce, for one segment; see ``shared_memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COMBINE: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}


@dataclass(frozen=True)
class Views:
    """The places in shared memory for one segment, as one rank sees them.

    Attributes:
        sizes: How many numbers lie below, in and above the rank's own part.
        given: Where it writes what lies below and above, for their owners.
        terms: What the other ranks wrote for its own part.
        total: Where it writes the sum.
        taken: Where others write the sums of what lies below and above.
        rank: The place of its own term among the others.
    """

    sizes: list[int]
    given: tuple[Tensor, Tensor]
    terms: list[Tensor]
    total: Tensor
    taken: tuple[Tensor, Tensor]
    rank: int

    def of(self, segment: Tensor) -> Work:
        """Return the work on a segment."""
        return Work(self, *segment.split(self.sizes))


@dataclass(frozen=True)
class Work:
    """A segment of a rank's tensor in three pieces, and its places."""

    views: Views
    below: Tensor
    own: Tensor
    above: Tensor

    def give(self) -> None:
        """Write what the others add up."""
        _copy((self.below, self.above), self.views.given)

    def combine(self, op: str) -> None:
        """Add up the rank's own part, in order of rank."""
        views, combine = self.views, COMBINE[op]
        terms = [*views.terms[: views.rank], self.own]
        terms += views.terms[views.rank :]
        total = combine(terms[0], terms[1], out=views.total)
        for term in terms[2:]:
            combine(total, term, out=total)
        if op == "mean":
            total /= len(terms)
        self.own.copy_(total)

    def take(self) -> None:
        """Copy what the others added up."""
        _copy(self.views.taken, (self.below, self.above))


def _copy(sources: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    for source, place in zip(sources, places):
        if len(source):
            place.copy_(source)
