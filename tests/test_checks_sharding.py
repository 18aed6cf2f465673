"""The checks of the exercises on sharding: what they let pass, and not."""

import pytest
import torch

import dpkit
from dpkit.lab.common.checks import failure


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


def verdict(name, answer, why):
    answer.__name__ = name
    found = failure(answer)
    assert found is None if why is None else why in (found or "")
