"""The checks of the exercises on sharding."""

import torch

from dpkit.lab.common.traffic import Traffic
from dpkit.machine import devices
from dpkit.theory.exercises.verdict import Answer, require


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
