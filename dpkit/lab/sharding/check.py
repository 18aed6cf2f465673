"""The checks of the exercises on sharding."""

import torch

from dpkit.lab.common.traffic import Traffic
from dpkit.lab.common.verdict import Answer, require, require_reference
from dpkit.machine import devices

Action = tuple[str, int]


def check_kept_numbers(answer: Answer) -> None:
    """Each stage and rank, with sizes that k does not divide."""

    def reference(sizes: list[int], k: int, rank: int, stage: int) -> int:
        part = sum(len(torch.empty(n).tensor_split(k)[rank]) for n in sizes)
        cut = [stage >= 3, stage >= 2, stage >= 1, stage >= 1]
        return sum(part if shard else sum(sizes) for shard in cut)

    cases = [
        (sizes, k, rank, stage)
        for sizes, k in (([5, 4], 3), ([12], 4), ([2, 7, 1], 5))
        for rank in (0, k - 1)
        for stage in range(4)
    ]
    words = "blocks of {0}, {1} devices, rank {2}, stage {3}"
    require_reference(answer, reference, cases, words)


def check_momentum_step(answer: Answer) -> None:
    """Three steps as one device takes them, for the bytes of an allreduce."""
    n, k, lr = 11, 3, 0.1
    ranks = devices(k, "sim")
    torch.manual_seed(0)
    start = torch.rand(n, dtype=torch.double)
    wholes = [start.clone().to(d) for d in ranks]
    parts = start.tensor_split(k)
    momenta = [torch.zeros_like(p, device=d) for p, d in zip(parts, ranks)]
    alone, momentum = start.clone(), torch.zeros_like(start)
    for _ in range(3):
        grads = torch.rand(k, n, dtype=torch.double)
        given = [g.to(d) for g, d in zip(grads, ranks)]
        with Traffic() as traffic:
            answer(wholes, given, momenta, lr)
        momentum = 0.9 * momentum + grads.mean(0)
        alone -= lr * momentum
        _require_step(wholes, alone)
        allowed = 2 * (k - 1) * n * 8
        words = (
            f"it sends {traffic.num_bytes} bytes, where {allowed} are enough"
        )
        require(traffic.num_bytes <= allowed, words)


def _require_step(wholes: list[torch.Tensor], alone: torch.Tensor) -> None:
    for rank, params in enumerate(wholes):
        away = float((params.cpu() - alone).abs().max())
        words = f"rank {rank} is {away:.0e} away from one device"
        require(away < 1e-12, words)


def check_whole_from_shards(answer: Answer) -> None:
    """As many as k divides, and others; fewer than devices too."""
    for size, k in ((8, 4), (10, 4), (7, 3), (2, 3)):
        case = f"{size} numbers on {k} devices"
        numbers = torch.arange(size, dtype=torch.double)
        ranks = devices(k, "sim")
        shards = [s.to(d) for s, d in zip(numbers.tensor_split(k), ranks)]
        try:
            wholes = answer(shards, size)
        except RuntimeError as error:
            require(False, f"{case}: {error}")
        right = isinstance(wholes, list) and len(wholes) == k
        require(right, f"{case}: it returned {wholes!r}, expected a list")
        for rank, whole in enumerate(wholes):
            right = torch.equal(whole.cpu(), numbers)
            told = whole.tolist()
            require(right, f"{case}: rank {rank} has {told}")


def check_prefetch_order(answer: Answer) -> None:
    """What is computed is whole, and what is gathered is beside work."""
    for count in (1, 2, 5):
        order = answer(count)
        require(isinstance(order, list), f"it returned {order!r}")
        computed = [b for what, b in order if what == "compute"]
        words = f"{count} blocks: it computes {computed}"
        require(computed == list(range(count)), words)
        _require_order(order, f"{count} blocks")


def _require_order(order: list[Action], case: str) -> None:
    """Go through an order, and keep in mind which blocks are whole."""
    whole: set[int] = set()
    for place, (what, b) in enumerate(order):
        words = f"{case}: at {what} {b}"
        if what == "gather":
            beside = place == 0 or ("compute", b - 1) in order[place:]
            require(beside, f"{words}, block {b - 1} has been issued already")
            whole.add(b)
            require(len(whole) <= 2, f"{words}, {len(whole)} blocks are whole")
        else:
            require(b in whole, f"{words}, block {b} is not whole")
        if what == "free":
            later = ("compute", b) in order[place:]
            require(not later, f"{words}, the block is not computed yet")
            whole.remove(b)
    require(
        not whole, f"{case}: in the end block {min(whole, default=0)} is whole"
    )
