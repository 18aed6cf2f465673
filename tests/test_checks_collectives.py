"""The checks of the exercises on collectives tell wrong answers from right."""

import pytest
import torch

from dpkit import collectives
from dpkit.lab.common.checks import failure
from dpkit.theory.collectives.plans import Message, Plan
from dpkit.theory.collectives.rings import ring_allgather
from dpkit.theory.collectives.trees import tree_broadcast


def named(name, answer):
    answer.__name__ = name
    return answer


# -- a broadcast of a large buffer


def scattered(p, gather=ring_allgather):
    steps = [[Message(0, r, r, r + 1)] for r in range(1, p)]
    steps += gather(range(p), [(r, r + 1) for r in range(p)])
    return Plan("scatter and gather", p, p, steps)


def treed(p):
    return Plan("tree", p, 1, tree_broadcast(p))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda p: None, "not a plan"),
        (treed, "3 ranks: a port sends 2.0"),
        (lambda p: scattered(p, lambda *_: []), "not chunk"),
        (lambda p: scattered(p + 1), "not a plan for them"),
        (
            lambda p: Plan("long", p, p, [*scattered(p).steps, [
                Message(p - 1, 0, 0, 1)], []]),
            "steps, where",
        ),
    ],
)  # fmt: skip
def test_wrong_broadcasts(answer, why):
    assert why in failure(named("large_broadcast", answer))


# -- where to begin to split


def splits(p, rates):
    steps = (p - 1).bit_length()
    part = (p - 1) / p
    per_byte = steps * (rates.beta + rates.gamma)
    per_byte -= part * (2 * rates.beta + rates.gamma)
    return steps * rates.alpha / per_byte


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda p, rates: None, "returned None"),
        (lambda p, rates: splits(p, rates) * 1.1, "µs"),
        (lambda p, rates: splits(p, rates._replace(gamma=0)), "µs"),
        (lambda p, rates: splits(8, rates), "µs"),
    ],
)
def test_wrong_sizes(answer, why):
    assert why in failure(named("size_that_splits", answer))


# -- who sends first


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda rank, p: True, "2 ranks: all wait for ever"),
        (lambda rank, p: False, "wait for ever"),
        (lambda rank, p: rank > 0, "4 ranks: a step takes 4 rounds"),
        (lambda rank, p: rank % 2, "not True or False"),
        (lambda rank, p: rank < p // 2, "rounds"),
    ],
)
def test_wrong_orders(answer, why):
    assert why in failure(named("sends_first", answer))


# -- clipping


def clipped(shards, max_norm, everywhere=True, always=False):
    squares = [(shard**2).sum() for shard in shards]
    if everywhere:
        collectives.allreduce(squares)
    for shard, square in zip(shards, squares):
        scale = max_norm / square.sqrt()
        shard *= scale if always else scale.clamp(max=1)


def through_the_first(shards, max_norm):
    whole = torch.cat([shard.to(shards[0].device) for shard in shards])
    scale = min(1.0, max_norm / float(whole.norm()))
    for shard in shards:
        shard *= scale


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda shards, m: clipped(shards, m, everywhere=False), "have norm"),
        (lambda shards, m: clipped(shards, m, always=True), "have norm"),
        (lambda shards, m: None, "have norm"),
        (through_the_first, "bytes, where"),
    ],
)
def test_wrong_clipping(answer, why):
    assert why in failure(named("clip_shards", answer))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("large_broadcast", scattered),
        ("size_that_splits", splits),
        ("sends_first", lambda rank, p: rank % 2 == 0),
        ("clip_shards", clipped),
    ],
)
def test_right_answers(name, answer):
    assert failure(named(name, answer)) is None
