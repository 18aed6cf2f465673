"""Checks of the exercises on what is drawn at random."""

from collections.abc import Sequence

from dpbook.exercises.verdict import Answer, require, same


def check_exact_accuracy(
    answer: Answer, more: Sequence[tuple[int, list[int]]] = ()
) -> None:
    """Where the repeated examples are right, wrong, or where none are."""
    for num_ranks, right in (
        (3, [1, 1, 0, 1, 0, 1, 1]),
        (3, [0, 0, 1, 1, 1, 1, 1]),
        (2, [1, 0, 0, 1]),
        (4, [1, 0, 1, 1, 1]),
        (1, [1, 0, 1]),
        *more,
    ):
        n = len(right)
        padded = -(-n // num_ranks) * num_ranks
        # DistributedSampler: rank 1 of 3 has, of 7, 1, 4 and, repeated, 0.
        answers = [bool(right[i % n]) for i in range(padded)]
        ranks = [answers[rank::num_ranks] for rank in range(num_ranks)]
        found = answer(ranks, n)
        case = f"{n} examples on {num_ranks} ranks, {sum(right)} right"
        require(same(found, sum(right) / n), f"{case}: it returned {found}")
