"""The checks of the exercises on results that change with the devices."""

from itertools import product

import torch

from dpkit.lab.common.traffic import Traffic
from dpkit.lab.common.verdict import (
    Answer,
    require,
    require_reference,
    require_sent,
    same,
)
from dpkit.machine import devices


def check_loss_factors(answer: Answer) -> None:
    """With these factors the mean over ranks is that over examples."""

    def factors(counts: list[int]) -> list[float]:
        return [len(counts) * count / sum(counts) for count in counts]

    cases = [([4, 4],), ([3, 2, 2],), ([1, 6],), ([5, 0, 2, 1],)]
    require_reference(answer, factors, cases, "{0} examples")


def check_merged_statistics(answer: Answer) -> None:
    """Groups of equal and of far means, of two values and of many."""
    generator = torch.Generator().manual_seed(0)
    shapes = (1, 5), (2, 2), (3, 4), (4, 50)
    for (num_groups, size), spread in product(shapes, (0.0, 10.0)):
        X = torch.randn(num_groups, size, generator=generator).double()
        X += spread * torch.arange(num_groups)[:, None]
        found = answer(X.mean(1).tolist(), X.var(1).tolist(), size)
        expected = float(X.mean()), float(X.var())
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


def check_all_finite(answer: Answer) -> None:
    """One answer on every device, from one number of each."""
    inf, nan = float("inf"), float("nan")
    for k in (1, 2, 3, 5):
        for rank, bad in ((None, 0.0), (0, inf), (k - 1, nan), (k // 2, -inf)):
            shards = [
                torch.ones(100 + r, device=device)
                for r, device in enumerate(devices(k, "sim"))
            ]
            where = "all finite"
            if rank is not None:
                shards[rank][7] = bad
                where = f"{bad} on device {rank}"
            _check_flags(answer, shards, rank is None, f"{k} shards, {where}")


def _check_flags(
    answer: Answer, shards: list[torch.Tensor], finite: bool, case: str
) -> None:
    """Require the right flag on each device, for a few bytes."""
    k, ranks = len(shards), [shard.device for shard in shards]
    with Traffic() as traffic:
        found = answer(shards)
    words = f"{case}: it returned {found}, not one tensor for each device"
    require(found is not None and len(found) == k, words)
    places = [flag.device for flag in found]
    require(places == ranks, f"{case}: the answers lie on {places}")
    flags = [bool(flag) for flag in found]
    require(flags == [finite] * k, f"{case}: the devices say {flags}")
    require_sent(max([*traffic.sent.values(), 0]), 16 * k, case)
