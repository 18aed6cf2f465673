"""Checks of the exercises on results that change with the devices."""

from itertools import chain, product
from random import Random
from statistics import mean, variance

from dpkit.theory.exercises.verdict import (
    Answer,
    require,
    require_reference,
    same,
)


def check_loss_factors(answer: Answer) -> None:
    """With these factors the mean over ranks is that over examples."""

    def factors(counts: list[int]) -> list[float]:
        return [len(counts) * count / sum(counts) for count in counts]

    cases = [([4, 4],), ([3, 2, 2],), ([1, 6],), ([5, 0, 2, 1],)]
    require_reference(answer, factors, cases, "{0} examples")


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
