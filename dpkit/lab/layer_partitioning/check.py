"""The checks of the exercises on layer partitioning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpkit.lab.common.traffic import Traffic
from dpkit.lab.common.verdict import Answer, require
from dpkit.layer_partition.shards import even_sizes
from dpkit.machine import devices

CPU = torch.device("cpu")


def _require_tensors(
    found: Any, expected: Tensor, ranks: Sequence[torch.device], where: str
) -> None:
    """Require one tensor of the expected values on each device."""
    require(
        isinstance(found, list | tuple) and len(found) == len(ranks),
        f"it returned {type(found).__name__}, not a list of {len(ranks)} "
        "tensors",
    )
    for rank, (tensor, device) in enumerate(zip(found, ranks, strict=True)):
        require(
            isinstance(tensor, Tensor) and tensor.device == device,
            f"{where}: what rank {rank} has does not lie on {device}",
        )
        right = tensor.shape == expected.shape and torch.allclose(
            tensor.cpu(), expected, atol=1e-5
        )
        require(right, f"{where}: rank {rank} is wrong")


def check_sequence_parallel_norm(answer: Answer) -> None:
    """The norm of the sum on all ranks, each position normed once."""
    for k, length in ((1, 4), (2, 6), (3, 7), (4, 9)):
        ranks = devices(k, "sim")
        generator = torch.Generator().manual_seed(k)
        wholes = torch.randn(k, length, 5, generator=generator)
        terms = [w.to(d, copy=True) for w, d in zip(wholes, ranks)]
        norm = nn.LayerNorm(5)
        seen = [0] * k
        norms = [
            _counting(norm, rank, d, seen) for rank, d in enumerate(ranks)
        ]
        with Traffic() as traffic, torch.no_grad():
            found = answer(terms, norms)
        where = f"{length} positions on {k} devices"
        with torch.no_grad():
            expected = norm(wholes.sum(dim=0))
        _require_tensors(found, expected, ranks, where)
        shares = even_sizes(length, k)
        require(
            sorted(seen) == sorted(shares),
            f"{where}: the devices norm {seen} positions, where {shares} do",
        )
        _check_ports(traffic, ranks, length, max(shares), 4 * 5, where)


def _counting(
    norm: nn.Module, rank: int, device: torch.device, seen: list[int]
) -> Callable[[Tensor], Tensor]:
    """Return the norm on a device; it adds up the rows that it is given."""
    own: Any = nn.LayerNorm(5).to(device)
    own.load_state_dict(norm.state_dict())

    def apply(x: Tensor) -> Tensor:
        seen[rank] += len(x)
        normed: Tensor = own(x)
        return normed

    return apply


def _check_ports(
    traffic: Traffic,
    ranks: Sequence[torch.device],
    length: int,
    share: int,
    row_bytes: int,
    where: str,
) -> None:
    """Require that no port carries more than its part."""
    k = len(ranks)
    require(
        not traffic.sent[CPU] + traffic.received[CPU],
        f"{where}: it goes through the CPU",
    )
    # Its own positions to or from k - 1 others, and those of the others.
    limit = ((k - 1) * share + length - length // k) * row_bytes
    for rank, device in enumerate(ranks):
        busiest = max(traffic.sent[device], traffic.received[device])
        require(
            busiest <= limit,
            f"{where}: rank {rank} carries {busiest} bytes one way, where "
            f"{limit} do",
        )


def check_least_width(answer: Answer) -> None:
    """The width from the constants, for both ways to allreduce."""
    for flops, num_bytes, k in ((12e12, 10e9, 2), (15e12, 3e9, 5)):
        for by_parts in (False, True):
            ratio = flops / num_bytes
            expected = ratio / 3 if by_parts else ratio * k / 3
            found = answer(flops, num_bytes, k, by_parts)
            right = isinstance(found, int | float) and (
                abs(found / expected - 1) < 0.01
            )
            require(
                right,
                f"{flops:.1e} flop/s and {num_bytes:.0e} bytes/s on {k} "
                f"devices, by_parts={by_parts}: it returned {found}, "
                f"expected {expected:.0f}",
            )


def check_gradient_norm(answer: Answer) -> None:
    """The norm of all gradients, from one number of each device."""
    for k in (1, 2, 3):
        ranks = devices(k, "sim")
        generator = torch.Generator().manual_seed(k)
        weight = torch.randn(5, 4, generator=generator)
        biases = [torch.randn(n, generator=generator) for n in (6, 3)]
        parts = weight.tensor_split(k)
        shards = [p.to(d, copy=True) for p, d in zip(parts, ranks)]
        copies = [[b.to(d, copy=True) for d in ranks] for b in biases]
        with Traffic() as traffic:
            found = answer(shards, copies)
        require(found is not None, "it returned None, not a number")
        every = torch.cat([weight.flatten(), *biases])
        expected = float(every.norm())
        require(
            abs(float(found) - expected) < 1e-4,
            f"on {k} devices it returned {float(found):.4f}, expected "
            f"{expected:.4f}",
        )
        limit = 8 * (k + len(copies))
        require(
            traffic.sent.total() <= limit,
            f"on {k} devices it sends {traffic.sent.total()} bytes, where "
            f"{limit} do",
        )


def check_likeliest_words(answer: Answer) -> None:
    """The first of the largest scores, and two numbers from each device."""
    for k, num_words in ((1, 5), (2, 7), (3, 11), (4, 6)):
        ranks = devices(k, "sim")
        generator = torch.Generator().manual_seed(k)
        scores = torch.randint(4, (9, num_words), generator=generator)
        parts = scores.float().tensor_split(k, dim=1)
        shards = [p.to(d, copy=True) for p, d in zip(parts, ranks)]
        with Traffic() as traffic:
            found = answer(shards)
        expected = (scores == scores.amax(1, keepdim=True)).int().argmax(1)
        require(
            isinstance(found, Tensor) and found.device == ranks[0],
            f"it returned {found!r}, not a tensor on {ranks[0]}",
        )
        wrong = (found.cpu() != expected).nonzero().flatten().tolist()
        require(
            not wrong,
            f"{num_words} words on {k} devices: examples {wrong} are wrong",
        )
        limit = (k - 1) * 9 * (4 + 8)
        require(
            traffic.sent.total() <= limit,
            f"{num_words} words on {k} devices: it sends "
            f"{traffic.sent.total()} bytes, where {limit} do",
        )
