"""The checks of the exercises on results that change with the devices."""

from __future__ import annotations

import torch

from dpkit.lab.common.traffic import Traffic
from dpkit.lab.common.verdict import Answer, require
from dpkit.machine import devices


def check_loss_factors(answer: Answer) -> None:
    """Weighted so, the mean over ranks is the mean over examples."""
    for counts in ([4, 4], [3, 2, 2], [1, 6], [5, 0, 2, 1]):
        num_ranks, total = len(counts), sum(counts)
        expected = [num_ranks * count / total for count in counts]
        found = answer(counts)
        require(
            found is not None
            and len(found) == num_ranks
            and all(abs(a - b) < 1e-9 for a, b in zip(found, expected)),
            f"{counts} examples: it returned {found}, expected {expected}",
        )


def check_merged_statistics(answer: Answer) -> None:
    """Groups of equal and of far means, of two values and of many."""
    generator = torch.Generator().manual_seed(0)
    for num_groups, size in ((1, 5), (2, 2), (3, 4), (4, 50)):
        for spread in (0.0, 10.0):
            X = torch.randn(num_groups, size, generator=generator).double()
            X += spread * torch.arange(num_groups)[:, None]
            found = answer(X.mean(1).tolist(), X.var(1).tolist(), size)
            expected = float(X.mean()), float(X.var())
            require(
                found is not None and len(found) == 2,
                f"it returned {found}, not a mean and a variance",
            )
            require(
                all(abs(a - b) < 1e-9 for a, b in zip(found, expected)),
                f"{num_groups} groups of {size}: it returned "
                f"{found[0]:.4f} and {found[1]:.4f}, expected "
                f"{expected[0]:.4f} and {expected[1]:.4f}",
            )


def check_exact_accuracy(answer: Answer) -> None:
    """Where the repeated examples are right, wrong, and where there are none.

    The lists are those of a ``DistributedSampler`` that does not shuffle.
    """
    for num_ranks, right in (
        (3, [1, 1, 0, 1, 0, 1, 1]),
        (3, [0, 0, 1, 1, 1, 1, 1]),
        (2, [1, 0, 0, 1]),
        (4, [1, 0, 1, 1, 1]),
        (1, [1, 0, 1]),
    ):
        n = len(right)
        padded = -(-n // num_ranks) * num_ranks
        answers = [bool(right[i % n]) for i in range(padded)]
        ranks = [answers[rank::num_ranks] for rank in range(num_ranks)]
        found = answer(ranks, n)
        require(
            found is not None and abs(found - sum(right) / n) < 1e-9,
            f"{n} examples on {num_ranks} ranks, {sum(right)} right: it "
            f"returned {found}",
        )


def check_all_finite(answer: Answer) -> None:
    """One answer on every device, from one number of each."""
    inf, nan = float("inf"), float("nan")
    for k in (1, 2, 3, 5):
        ranks = devices(k, "sim")
        for rank, bad in ((None, 0.0), (0, inf), (k - 1, nan), (k // 2, -inf)):
            shards = [
                torch.ones(100 + r, device=d) for r, d in zip(range(k), ranks)
            ]
            if rank is not None:
                shards[rank][7] = bad
            with Traffic() as traffic:
                found = answer(shards)
            where = "all finite" if rank is None else f"{bad} on device {rank}"
            text = f"{k} shards, {where}"
            require(
                found is not None and len(found) == k,
                f"{text}: it returned {found}, not one tensor for each device",
            )
            require(
                [flag.device for flag in found] == ranks,
                f"{text}: the answers lie on {[f.device for f in found]}",
            )
            flags = [bool(flag) for flag in found]
            require(
                flags == [rank is None] * k,
                f"{text}: the devices say {flags}",
            )
            most = max([*traffic.sent.values(), 0])
            require(
                most <= 16 * k,
                f"{text}: a device sends {most} bytes, where {16 * k} do",
            )
