"""The checks of the exercises on sharding: what they let pass, and not."""

import pytest
import torch

import dpkit
from dpkit.lab.common.checks import failure


def kept(sizes, k, rank, stage):
    whole = sum(sizes)
    part = sum(n // k + (rank < n % k) for n in sizes)
    cut = [stage >= 3, stage >= 2, stage >= 1, stage >= 1]
    return sum(part if shard else whole for shard in cut)


def even_parts(sizes, k, rank, stage):
    return kept([n - n % k for n in sizes], k, rank, stage)


def parts_of_all(sizes, k, rank, stage):
    """Cut all blocks together."""
    return kept([sum(sizes)], k, rank, stage)


def one_average(sizes, k, rank, stage):
    return kept(sizes, k, rank, stage) - kept(sizes, k, rank, 3) // 4


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (kept, None),
        (even_parts, "3 devices"),
        (parts_of_all, "3 devices"),
        (one_average, "stage 0"),
        (lambda sizes, k, rank, stage: None, "it returned None"),
    ],
)
def test_kept_numbers(answer, why):
    verdict("kept_numbers", answer, why)


def momentum_step(wholes, gradients, momenta, lr, op="mean", last=True):
    parts = dpkit.reduce_scatter(gradients, op=op)
    for rank, (part, momentum) in enumerate(zip(parts, momenta)):
        momentum.mul_(0.9).add_(part)
        wholes[rank].tensor_split(len(wholes))[rank].sub_(lr * momentum)
    if last:
        dpkit.allgather(wholes)


def sums(*arguments):
    momentum_step(*arguments, op="sum")


def not_gathered(*arguments):
    momentum_step(*arguments, last=False)


def by_allreduce(wholes, gradients, momenta, lr):
    """Right, but gradients travel twice."""
    dpkit.allreduce(gradients, "mean", "ring")
    scaled = [g / len(wholes) for g in gradients]
    momentum_step(wholes, scaled, momenta, lr, op="sum")


def without_momentum(wholes, gradients, momenta, lr):
    for momentum in momenta:
        momentum.zero_()
    momentum_step(wholes, gradients, momenta, lr)


def momentum_thrown_away(wholes, gradients, momenta, lr):
    old = [momentum.clone() for momentum in momenta]
    momentum_step(wholes, gradients, momenta, lr)
    for momentum, before in zip(momenta, old):
        momentum.copy_(before)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (momentum_step, None),
        (sums, "rank 0 is"),
        (not_gathered, "rank 0 is"),
        (by_allreduce, "it sends"),
        (without_momentum, "rank 0 is"),
        (momentum_thrown_away, "rank 0 is"),
        (lambda wholes, gradients, momenta, lr: None, "rank 0 is"),
    ],
)
def test_momentum_step(answer, why):
    verdict("momentum_step", answer, why)


def whole_from_shards(shards, size):
    wholes = [torch.zeros(size).to(shard) for shard in shards]
    for rank, (whole, shard) in enumerate(zip(wholes, shards)):
        whole.tensor_split(len(shards))[rank].copy_(shard)
    dpkit.allgather(wholes)
    return wholes


def not_sent(shards, size):
    whole = torch.cat([shard.cpu() for shard in shards])
    return [whole if r else whole * 0 for r in range(len(shards))]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (whole_from_shards, None),
        (not_sent, "rank 0 has"),
        (lambda shards, size: shards[:1], "expected a list"),
        (lambda shards, size: None, "it returned None"),
    ],
)
def test_whole_from_shards(answer, why):
    verdict("whole_from_shards", answer, why)


def order(count, ask="before", free="after"):
    found = [("gather", 0)]
    for b in range(count):
        after = [("gather", b + 1)] if b + 1 < count else []
        found += after if ask == "before" else []
        found += [("free", b)] if free == "before" else []
        found.append(("compute", b))
        found += after if ask == "after" else []
        found += [("free", b)] if free == "after" else []
    return found


def all_at_once(count):
    return [
        (w, b) for w in ("gather", "compute", "free") for b in range(count)
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (order, None),
        (lambda count: order(count, ask="after"), "has been issued already"),
        (lambda count: order(count, free="before"), "not computed yet"),
        (lambda count: order(count, free="never"), "in the end block 0"),
        (lambda count: order(count)[1:], "block 0 is not whole"),
        (lambda count: order(count - 1), "it computes []"),
        (all_at_once, "3 blocks are whole"),
        (lambda count: None, "it returned None"),
    ],
)
def test_prefetch_order(answer, why):
    verdict("prefetch_order", answer, why)


def verdict(name, answer, why):
    answer.__name__ = name
    found = failure(answer)
    assert found is None if why is None else why in (found or "")
