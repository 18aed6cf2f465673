"""The checks of the exercises on collectives tell wrong answers from right."""

import pytest

from dpbook.common.checks import failure
from dpkit import collectives


def named(name, answer):
    answer.__name__ = name
    return answer


def clipped(shards, max_norm, everywhere=True, always=False):
    squares = [(shard**2).sum() for shard in shards]
    if everywhere:
        collectives.allreduce(squares)
    for shard, square in zip(shards, squares):
        scale = max_norm / square.sqrt()
        shard *= scale if always else scale.clamp(max=1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda shards, m: clipped(shards, m, everywhere=False), "have norm"),
        (lambda shards, m: clipped(shards, m, always=True), "have norm"),
        (lambda shards, m: None, "have norm"),
    ],
)
def test_wrong_clipping(answer, why):
    assert why in failure(named("clip_shards", answer))


def test_the_right_clipping():
    assert failure(named("clip_shards", clipped)) is None
