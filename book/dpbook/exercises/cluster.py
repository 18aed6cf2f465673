"""Checks of the exercises on jobs of many processes."""

from collections.abc import Sequence
from math import sqrt

from dpbook.exercises.verdict import Answer, require, require_reference


def check_best_interval(
    answer: Answer, more: Sequence[tuple[float, float]] = ()
) -> None:
    """An hour between failures and a month, quick saves and slow ones."""
    cases = [(60.0, 11135.0), (5.0, 3600.0), (300.0, 2.6e6), *more]
    case_format = "saving takes {0} s, {1} s between failures"
    require_reference(
        answer,
        lambda c, m: sqrt(2 * c * m),
        cases,
        case_format,
        form=".1f",
        near=1e-3,
    )


def check_rows_of_rank(
    answer: Answer, more: Sequence[tuple[int, int]] = ()
) -> None:
    """The ranks of a step have its batch, each row once, in equal parts."""
    order = [7, 2, 9, 4, 0, 5, 8, 1, 3, 6]
    cases = (1, 0), (2, 2), (3, 0), (3, 1), (5, 1), (2, 0)
    for world_size, step in (*cases, *more):
        ranks = range(world_size)
        parts = [[*answer(order, step, 4, r, world_size)] for r in ranks]
        batch = sorted(order[4 * step : 4 * step + 4])
        case = f"step {step} on {world_size} ranks: the ranks have {parts}"
        right = sorted(x for part in parts for x in part) == batch
        require(right, f"{case}, the batch is {batch}")
        sizes = [len(part) for part in parts]
        require(max(sizes) - min(sizes) <= 1, f"{case}, of unequal sizes")


def check_lost_ranks(answer: Answer) -> None:
    """The silent ranks; if all answer, those that do not stop."""

    def reference(size: int, here: set[int], stopped: set[int]) -> set[int]:
        return {*range(size)} - here or {*range(size)} - stopped

    cases = (3, {0, 1}, {1}), (3, {0, 1, 2}, {0, 2}), (4, {0, 3}, {0, 3})
    case_format = "{0} ranks, here: {1}, stopped: {2}"
    require_reference(answer, reference, cases, case_format)
