"""Ring attention with a causal mask: who computes what in which step, when.

The sequence is cut into pieces of equal length, as in ``dpkit.sequence.cut``,
which this module repeats without torch. Keys and values go round a ring of k
ranks: in step t rank r has those of rank r − t. These pairs, a piece of
queries and a piece of keys, 2 ranks compute; the mask divides those in
brackets::

              in order            head and tail
              rank 0    rank 1    rank 0              rank 1
    step 0    (0 0)     (1 1)     (0 0) 3 0 (3 3)     (1 1) 2 1 (2 2)
    step 1    -         1 0       3 1  3 2            1 0  2 0

A pair that the mask divides has half of its scores. In order rank r computes
r + 1/2 of k² pairs; with head and tail 2k of (2k)², as all others.

Assumed: a block leaves at the beginning of a step, when both ends have begun
it. The next step begins when a rank has computed, sent and received. What a
kernel computes beyond the mask, and merging, take no time.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Meeting(NamedTuple):
    """A piece of queries that meets a piece of keys."""

    query: int  #: the number of the piece in the sequence
    key: int
    masked: bool  #: whether the mask divides the pair


class RingStep(NamedTuple):
    """What a rank does in a step of the ring, in seconds."""

    rank: int
    number: int
    start: float
    end: float  #: when the rank has computed; it may have to wait then


def pieces_of(rank: int, *, k: int, balanced: bool) -> list[int]:
    """Return the pieces that a rank has.

    Example:
        >>> [pieces_of(r, k=3, balanced=True) for r in range(3)]
        [[0, 5], [1, 4], [2, 3]]
    """
    return [rank, 2 * k - 1 - rank] if balanced else [rank]


def meetings(
    rank: int, step: int, *, k: int, balanced: bool
) -> Iterator[Meeting]:
    """Yield the pairs of pieces that a rank computes in a step.

    Example:
        >>> [m[:2] for m in meetings(rank=0, step=1, k=3, balanced=True)]
        [(5, 2), (5, 3)]
    """
    for query in pieces_of(rank, k=k, balanced=balanced):
        for key in pieces_of((rank - step) % k, k=k, balanced=balanced):
            if key <= query:
                yield Meeting(query, key, masked=key == query)


def share(rank: int, *, k: int, balanced: bool) -> tuple[int, int]:
    """Return how many halves of pairs a rank computes, and of how many.

    Example:
        >>> [share(3, k=4, balanced=balanced) for balanced in (False, True)]
        [(7, 32), (16, 128)]
    """
    if balanced:
        return 4 * k, 2 * (2 * k) ** 2
    return 2 * rank + 1, 2 * k**2


def ring_steps(
    k: int, *, balanced: bool, alone: float, hop: float
) -> list[RingStep]:
    """Return all steps of all ranks, in the order of the steps.

    Args:
        k: The number of ranks.
        balanced: Whether a rank has a piece of the head and one of the tail.
        alone: The seconds of one device for the whole, which is half of all
            scores.
        hop: The seconds of a block's keys and values on their way.

    Example:
        >>> ring_steps(2, balanced=False, alone=4.0, hop=0.5)[-1]
        RingStep(rank=1, number=1, start=1.0, end=3.0)
    """
    # Two ranks in order, one device takes 4 s, a hop half a second.
    #
    #     rank 0    computes 0 to 1    receives 0 to 0.5
    #     rank 1    computes 0 to 1, and 1 to 3
    of_half = 2 * alone / (2 * _num_pieces(k, balanced) ** 2)
    starts = [0.0] * k
    found = []
    for number in range(k):
        steps = [
            RingStep(
                rank=rank,
                number=number,
                start=starts[rank],
                end=starts[rank]
                + of_half * _halves(rank, number, k=k, balanced=balanced),
            )
            for rank in range(k)
        ]
        found += steps
        # done[r]: what rank r sends has arrived at the next rank.
        done = [
            hop + max(starts[rank], starts[(rank + 1) % k])
            for rank in range(k)
        ]
        starts = [
            max(steps[rank].end, done[rank - 1], done[rank])
            for rank in range(k)
        ]
    return found


def _halves(rank: int, step: int, *, k: int, balanced: bool) -> int:
    """Return how many halves of pairs a rank computes in a step."""
    return sum(
        1 if m.masked else 2
        for m in meetings(rank, step, k=k, balanced=balanced)
    )


def _num_pieces(k: int, balanced: bool) -> int:
    return 2 * k if balanced else k
