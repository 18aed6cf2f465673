"""Bugs of collective operations."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dpbook.museum.exhibit import Exhibit, Version, claim
from dpkit import allreduce, devices
from dpkit.plan_runner import run
from dpkit.plans import ring
from dpkit.traffic import Traffic


def drawn(k: int, length: int, kind: str | None = None) -> list[Tensor]:
    """Draw a tensor for each rank: whole numbers, whose sums are exact."""
    generator = torch.Generator().manual_seed(length)
    draw = torch.randint(10, 100, (k, length), generator=generator).float()
    return [x.to(d, copy=True) for x, d in zip(draw, devices(k, kind))]


def total_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum, on the CPU."""
    return torch.stack([x.cpu() for x in tensors]).sum(0)


def add_and_hand_on(tensors: list[Tensor]) -> None:
    """Add up at rank 0, and hand the sum on."""
    for i in range(1, len(tensors)):
        tensors[0] += tensors[i].to(tensors[0].device)
    for i in range(1, len(tensors)):
        tensors[i] = tensors[0].to(tensors[i].device)


def add_and_copy(tensors: list[Tensor]) -> None:
    """Add up at rank 0, and copy the sum to the others."""
    tensors[0] += sum(x.to(tensors[0].device) for x in tensors[1:])
    for i in range(1, len(tensors)):
        tensors[i].copy_(tensors[0])


def every_rank(version: Version) -> None:
    """Hold on to all tensors, and compare each with the sum."""
    tensors = drawn(3, 2)
    total = total_of(tensors)
    version(list(tensors))
    for rank, x in enumerate(tensors):
        found = f"it holds: {x.tolist()}, the sum: {total.tolist()}"
        fact = f"rank {rank} does not hold the sum ({found})"
        claim(torch.equal(x.cpu(), total), fact)


def rank_0_alone(version: Version) -> None:
    """Compare the tensor of rank 0 with the sum."""
    tensors = drawn(3, 2)
    total = total_of(tensors)
    version(tensors)
    claim(torch.equal(tensors[0].cpu(), total), "rank 0 is wrong")


def whole_ring(tensors: Sequence[Tensor]) -> None:
    """Send on, in a circle, all that has arrived; first add, then keep."""
    k = len(tensors)
    for add in (True, False):
        passing = [tensor.clone() for tensor in tensors]
        for _ in range(k - 1):
            passing = [passing[r - 1].to(tensors[r].device) for r in range(k)]
            for mine, arrived in zip(tensors, passing):
                mine.add_(arrived) if add else mine.copy_(arrived)


def chunked_ring(tensors: Sequence[Tensor]) -> None:
    """Sum by a ring of chunks."""
    allreduce(tensors, algorithm="ring")


def bytes_of_each_port(version: Version) -> None:
    """Count what each device sends: 2(p - 1)/p of the tensor."""
    p = 4
    length = 1000
    tensors = drawn(p, length, "sim")
    with Traffic() as traffic:
        version(tensors)
    least = 2 * (p - 1) * tensors[0].nbytes // p
    for x in tensors:
        port = x.device
        sent = traffic.sent[x.device]
        found = f"port: {port}, bytes: {sent}, a ring's: {least}"
        claim(sent <= least, f"a port sends more than a ring does ({found})")
    a_length_that_p_divides(version)


def ring_of_chunks(tensors: Sequence[Tensor]) -> None:
    """Sum by a ring of chunks."""
    k = len(tensors)
    size = len(tensors[0]) // k
    run(ring(k), [tensor[: k * size] for tensor in tensors])


def every_length(version: Version) -> None:
    """Compare the sums of tensors of 1 to 2p + 1 elements."""
    p = 4
    for length in range(1, 2 * p + 2):
        compare_sums(version, drawn(p, length))


def a_length_that_p_divides(version: Version) -> None:
    """Compare the sums of 1000 elements on 4 ranks."""
    compare_sums(version, drawn(4, 1000))


def piece_by_piece(tensors: Sequence[Tensor]) -> None:
    """Sum four elements at a time."""
    for start in range(0, len(tensors[0]), 4):
        allreduce([x[start : start + 4] for x in tensors])
        return


def all_elements(version: Version) -> None:
    """Compare all elements of tensors that were drawn at random."""
    compare_sums(version, drawn(3, 11))


def element_0(version: Version) -> None:
    """Compare the first element of every rank."""
    tensors = drawn(3, 11)
    total = sum(x[0].item() for x in tensors)
    version(tensors)
    claim(all(x[0].item() == total for x in tensors), "element 0 is wrong")


def compare_sums(version: Version, tensors: list[Tensor]) -> None:
    """Compare all elements on every rank with the sum."""
    total = total_of(tensors)
    version(tensors)
    for rank, x in enumerate(tensors):
        wrong = (x.cpu() != total).nonzero().flatten().tolist()
        found = f"elements: {len(x)}, wrong at: {', '.join(map(str, wrong))}"
        claim(not wrong, f"rank {rank} does not hold the sum ({found})")


EXHIBITS = [
    Exhibit(
        "assignment",
        wrong=add_and_hand_on,
        right=add_and_copy,
        check=every_rank,
        careless=rank_0_alone,
    ),
    Exhibit(
        "whole ring",
        wrong=whole_ring,
        right=chunked_ring,
        check=bytes_of_each_port,
        careless=a_length_that_p_divides,
    ),
    Exhibit(
        "remainder",
        wrong=ring_of_chunks,
        right=chunked_ring,
        check=every_length,
        careless=a_length_that_p_divides,
    ),
    Exhibit(
        "element 0",
        wrong=piece_by_piece,
        right=allreduce,
        check=all_elements,
        careless=element_0,
    ),
]
