"""Gradients of a sheet, to be cut into buckets."""

from collections.abc import Iterator
from functools import partial
from itertools import chain, combinations, pairwise
from math import ceil
from random import Random

from dpbook.assignment.asked import Asked, listed, passes
from dpbook.exercises.overlap import Gradients, check_cut_buckets, reduced

SIZES = (8, 6, 4, 3, 2, 1)  # MB
IN_PAIRS = [2, 2, 2, 2, 2]
ONE_EACH = [1] * 10


def ways_to_cut(n: int) -> Iterator[list[int]]:
    """Yield each way to cut n things in a row, as the lengths of the parts.

    Example:
        >>> list(ways_to_cut(3))
        [[3], [1, 2], [2, 1], [1, 1, 1]]
    """
    for parts in range(n):
        for places in combinations(range(1, n), parts):
            borders = chain((0,), places, (n,))
            yield [b - a for a, b in pairwise(borders)]


def draw_cut_buckets(random: Random) -> Asked:
    """Draw ten sizes and two limits that only a few cuts keep."""
    while True:
        drawn = _draw(random)
        easy = any(passes(drawn.check, cut) for cut in (IN_PAIRS, ONE_EACH))
        if len(drawn.keys) <= 4 and not easy:
            return drawn


def _draw(random: Random) -> Asked:
    sizes = sorted(random.choices(SIZES, k=10), reverse=True)
    gradients = Gradients(
        megabytes=tuple(sizes),
        ms_to_start=random.choice((0.4, 0.5, 0.6, 0.8)),
        ms_for_a_megabyte=random.choice((0.15, 0.2, 0.25)),
        most_megabytes=sizes[0] + random.choice((1, 2, 4)),
    )
    ends = [
        end
        for end, largest in (
            reduced(counts, gradients) for counts in ways_to_cut(10)
        )
        if largest <= gradients.most_megabytes
    ]
    gradients = gradients._replace(most_ms=ceil(10 * min(ends)) / 10)
    check = partial(check_cut_buckets, gradients=gradients)
    listed_sizes = listed([str(size) for size in sizes])
    start, more = gradients.ms_to_start, gradients.ms_for_a_megabyte
    most = gradients.most_megabytes
    return Asked(
        phrases={
            "8, 8, 4, 4, 4, 2, 2, 2, 1 and 1 MB": f"{listed_sizes} MB",
            "takes 0.5 ms, and another 0.2 ms": (
                f"takes {start} ms, and another {more} ms"
            ),
            "within 11.2 ms of": f"within {gradients.most_ms} ms of",
            "more than 10 MB": f"more than {most} MB",
        },
        check=check,
        keys=[cut for cut in ways_to_cut(10) if passes(check, cut)],
    )
