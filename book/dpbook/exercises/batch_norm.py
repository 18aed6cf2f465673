"""Checks of the exercises on means and on batch norm."""

from collections.abc import Sequence
from itertools import chain, product
from math import nan
from random import Random
from statistics import mean, variance

from dpbook.exercises.verdict import Answer, require, require_same, same


def check_mean_of_ranks(
    answer: Answer, more: Sequence[tuple[list[int], list[float]]] = ()
) -> None:
    """The mean over examples, where shards are alike, ragged or empty."""
    for counts, means in (
        ([4, 4], [1.0, 3.0]),
        ([3, 2, 2], [1.0, 2.0, 6.0]),
        ([1, 6], [7.0, 0.0]),
        ([5, 0, 3], [1.0, nan, 9.0]),
        *more,
    ):
        total = sum(n * m for n, m in zip(counts, means) if n)
        case = f"{counts} examples with the means {means}"
        require_same(answer(means, counts), total / sum(counts), case)


def check_merged_statistics(answer: Answer) -> None:
    """Groups of equal and of far means, of two values and of many."""
    random = Random(0)
    shapes = (1, 5), (2, 2), (3, 4), (4, 50)
    for (num_groups, size), spread in product(shapes, (0.0, 10.0)):
        groups = [
            [random.gauss(spread * group, 1) for _ in range(size)]
            for group in range(num_groups)
        ]
        means = [mean(group) for group in groups]
        found = answer(means, [variance(group) for group in groups], size)
        together = list(chain(*groups))
        expected = mean(together), variance(together)
        why = f"it returned {found}, not a mean and a variance"
        require(found is not None and len(found) == 2, why)
        returned = " and ".join(f"{x:.4f}" for x in found)
        wanted = " and ".join(f"{x:.4f}" for x in expected)
        case = f"{num_groups} groups of {size}"
        why = f"{case}: it returned {returned}, expected {wanted}"
        require(same(found, expected), why)
