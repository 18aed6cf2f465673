"""Checks of the exercises on results that change with the devices."""

from itertools import chain, product
from math import nan
from random import Random
from statistics import mean, variance

from dpkit.theory.exercises.verdict import Answer, require, require_same, same


def check_mean_of_ranks(answer: Answer) -> None:
    """The mean over examples, where shards are alike, ragged or empty."""
    for counts, means in (
        ([4, 4], [1.0, 3.0]),
        ([3, 2, 2], [1.0, 2.0, 6.0]),
        ([1, 6], [7.0, 0.0]),
        ([5, 0, 3], [1.0, nan, 9.0]),
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
        words = f"it returned {found}, not a mean and a variance"
        require(found is not None and len(found) == 2, words)
        returned = " and ".join(f"{x:.4f}" for x in found)
        wanted = " and ".join(f"{x:.4f}" for x in expected)
        case = f"{num_groups} groups of {size}"
        words = f"{case}: it returned {returned}, expected {wanted}"
        require(same(found, expected), words)


def check_exact_accuracy(answer: Answer) -> None:
    """Where the repeated examples are right, wrong, or where none are."""
    for num_ranks, right in (
        (3, [1, 1, 0, 1, 0, 1, 1]),
        (3, [0, 0, 1, 1, 1, 1, 1]),
        (2, [1, 0, 0, 1]),
        (4, [1, 0, 1, 1, 1]),
        (1, [1, 0, 1]),
    ):
        n = len(right)
        padded = -(-n // num_ranks) * num_ranks
        # DistributedSampler: rank 1 of 3 has, of 7, 1, 4 and, repeated, 0.
        answers = [bool(right[i % n]) for i in range(padded)]
        ranks = [answers[rank::num_ranks] for rank in range(num_ranks)]
        found = answer(ranks, n)
        case = f"{n} examples on {num_ranks} ranks, {sum(right)} right"
        require(same(found, sum(right) / n), f"{case}: it returned {found}")
