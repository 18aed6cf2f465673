"""Checks of the exercises on sending while computing."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from dpbook.exercises.verdict import Answer, require, require_reference
from dpbook.formulas.overlap import bucket_ends

MEGABYTES = (8, 8, 4, 4, 4, 2, 2, 2, 1, 1)


class Gradients(NamedTuple):
    """Gradients to be cut into buckets, and two limits.

    They become ready one after another, a millisecond apart, that of the last
    layer first. To reduce a bucket takes ``ms_to_start``, and
    ``ms_for_a_megabyte`` more for each megabyte.
    """

    megabytes: tuple[int, ...] = MEGABYTES
    ms_to_start: float = 0.5
    ms_for_a_megabyte: float = 0.2
    most_ms: float = 11.2  #: when all must be reduced
    most_megabytes: int = 10  #: of a bucket


BOOK = Gradients()


def reduced(
    counts: Sequence[int], gradients: Gradients = BOOK
) -> tuple[float, int]:
    """Return the end of the last bucket, in ms, and the largest, in MB.

    Args:
        counts: How many gradients each bucket holds, the first ready first.
        gradients: Those that are cut.

    Example:
        >>> reduced([10])  # at 10 ms all are ready, and 36 MB are sent
        (17.7, 36)
    """
    borders = list(accumulate(counts, initial=0))
    sizes = [sum(gradients.megabytes[a:b]) for a, b in pairwise(borders)]
    start, more = gradients.ms_to_start, gradients.ms_for_a_megabyte
    costs = [start + more * size for size in sizes]
    return round(bucket_ends(borders[1:], costs)[-1], 6), max(sizes)


def check_cut_buckets(answer: Answer, gradients: Gradients = BOOK) -> None:
    """Gradients in buckets: done in time, and none of them too large."""
    counts = answer()
    why = f"it returned {counts!r}, not a list of whole numbers above 0"
    is_list = isinstance(counts, list) and len(counts) > 0
    require(is_list and all(type(n) is int and n > 0 for n in counts), why)
    there = len(gradients.megabytes)
    why = f"the buckets hold {sum(counts)} gradients, and there are {there}"
    require(sum(counts) == there, why)
    end, largest = reduced(counts, gradients)
    most = gradients.most_ms
    why = f"{counts}: the last one ends at {end:.1f} ms, where {most} are"
    require(end <= most, f"{why} allowed")
    mb = gradients.most_megabytes
    why = f"{counts}: the largest has {largest} MB, where {mb} are allowed"
    require(largest <= mb, why)


def check_fill_buckets(
    answer: Answer, more: Sequence[tuple[list[int], int]] = ()
) -> None:
    """From the last to the first; a bucket is closed at the limit."""

    def from_the_last(sizes: list[int], limit: int) -> list[list[int]]:
        buckets: list[list[int]] = []
        for number in reversed(range(len(sizes))):
            filled = sum(sizes[i] for i in buckets[-1]) if buckets else limit
            if filled >= limit:
                buckets.append([])
            buckets[-1].append(number)
        return buckets

    cases = [
        ([4, 4, 4, 4], 8),
        ([3, 9, 2, 2, 5], 6),
        ([5], 3),
        ([1, 2, 3, 4, 5, 6], 100),
        *more,
    ]
    require_reference(
        answer, from_the_last, cases, "sizes {0}, a limit of {1}"
    )
