"""Checks of the exercises on sending while computing."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from dpbook.exercises.verdict import Answer, require, require_reference
from dpbook.formulas.overlap import bucket_ends

# The gradients of ten layers become ready one after another, a millisecond
# apart, that of the last layer first. To reduce a bucket takes so long:
MEGABYTES = (8, 8, 4, 4, 4, 2, 2, 2, 1, 1)
MS_TO_START = 0.5
MS_FOR_A_MEGABYTE = 0.2


def reduced(counts: Sequence[int]) -> tuple[float, int]:
    """Return the end of the last bucket, in ms, and the largest, in MB.

    ``counts`` are how many gradients each bucket holds, the first ready first.

    Example:
        >>> reduced([10])  # at 10 ms all are ready, and 36 MB are sent
        (17.7, 36)
    """
    borders = list(accumulate(counts, initial=0))
    sizes = [sum(MEGABYTES[a:b]) for a, b in pairwise(borders)]
    costs = [MS_TO_START + MS_FOR_A_MEGABYTE * size for size in sizes]
    return round(bucket_ends(borders[1:], costs)[-1], 6), max(sizes)


def check_cut_buckets(answer: Answer) -> None:
    """Ten gradients in buckets: done by 11.2 ms, and at most 10 MB in one."""
    counts = answer()
    words = f"it returned {counts!r}, not a list of whole numbers above 0"
    is_list = isinstance(counts, list) and len(counts) > 0
    require(is_list and all(type(n) is int and n > 0 for n in counts), words)
    words = f"the buckets hold {sum(counts)} gradients, and there are 10"
    require(sum(counts) == len(MEGABYTES), words)
    end, largest = reduced(counts)
    words = f"{counts}: the last one ends at {end:.1f} ms, where 11.2 are"
    require(end <= 11.2, f"{words} allowed")
    words = f"{counts}: the largest has {largest} MB, where 10 are allowed"
    require(largest <= 10, words)


def check_fill_buckets(answer: Answer) -> None:
    """From the last to the first; a bucket is closed at the limit."""

    def from_the_last(sizes: list[int], limit: int) -> list[list[int]]:
        buckets: list[list[int]] = []
        for place in reversed(range(len(sizes))):
            filled = sum(sizes[i] for i in buckets[-1]) if buckets else limit
            if filled >= limit:
                buckets.append([])
            buckets[-1].append(place)
        return buckets

    cases = [
        ([4, 4, 4, 4], 8),
        ([3, 9, 2, 2, 5], 6),
        ([5], 3),
        ([1, 2, 3, 4, 5, 6], 100),
    ]
    require_reference(
        answer, from_the_last, cases, "sizes {0}, a limit of {1}"
    )
