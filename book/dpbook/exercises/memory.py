"""The check of the exercise on what a step keeps."""

from collections.abc import Sequence
from itertools import combinations
from random import Random

from dpbook.exercises.verdict import Answer, require

Result = tuple[int, float]


def check_what_to_keep(
    answer: Answer, more: Sequence[tuple[list[Result], int]] = ()
) -> None:
    """Where all fits, where nothing does, and where greedy choices fail."""
    random = Random(0)
    drawn = [
        (random.randint(1, 9), random.randint(1, 9) / 2) for _ in range(9)
    ]
    # In the third case a result with most seconds a byte takes the room of
    # two that are better together, and in the fourth one with most seconds.
    cases: tuple[tuple[list[Result], int], ...] = (
        ([(4, 1.0), (8, 2.0)], 12),
        ([(4, 1.0), (8, 2.0)], 3),
        ([(5, 10.0), (4, 7.0), (4, 7.0)], 8),
        ([(8, 6.0), (5, 4.0), (5, 4.0)], 10),
        (drawn, 20),
        *more,
    )
    for results, most_bytes in cases:
        case = f"{results} in {most_bytes} bytes"
        kept = answer(list(results), most_bytes)
        require(
            isinstance(kept, list) and kept == sorted(set(kept)),
            f"{case}: it returned {kept}, not positions in increasing order",
        )
        require(
            all(0 <= i < len(results) for i in kept),
            f"{case}: it returned {kept}, and there are {len(results)}",
        )
        num_bytes = sum(results[i][0] for i in kept)
        require(
            num_bytes <= most_bytes,
            f"{case}: it returned {kept}, which take {num_bytes} bytes",
        )
        again = _seconds_again(results, kept)
        least = _least_again(results, most_bytes)
        require(
            again <= least + 1e-9,
            f"{case}: it returned {kept}, and {again:g} s are computed again, "
            f"where {least:g} s are possible",
        )


def _seconds_again(results: list[Result], kept: list[int]) -> float:
    """Return the seconds of the results that are not kept."""
    return sum(s for i, (_, s) in enumerate(results) if i not in kept)


def _least_again(results: list[Result], most_bytes: int) -> float:
    """Return the least seconds that any choice which fits computes again."""
    positions = range(len(results))
    return min(
        _seconds_again(results, list(kept))
        for count in range(len(results) + 1)
        for kept in combinations(positions, count)
        if sum(results[i][0] for i in kept) <= most_bytes
    )
