"""The check of the exercise on a shared decision refuses usual mistakes."""

import pytest

import dpkit
from dpbook.common.checks import failure


def by_allreduce(shards):
    flags = [shard.isfinite().all().float() for shard in shards]
    dpkit.allreduce(flags, op="min")
    return flags


def max_of_flags(shards):
    flags = [shard.isfinite().all().float() for shard in shards]
    dpkit.allreduce(flags, op="max")
    return flags


def all_on_one(shards):
    return [by_allreduce(shards)[0]] * len(shards)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (by_allreduce, None),
        (
            lambda shards: [s.isfinite().all() for s in shards],
            "2 shards, inf on device 0",
        ),
        (lambda shards: [~s.isinf().any() for s in shards], "nan on device 0"),
        (max_of_flags, "2 shards, inf on device 0"),
        (all_on_one, "the answers lie on"),
        (lambda shards: None, "it returned None"),
    ],
)
def test_all_finite(answer, why, monkeypatch):
    monkeypatch.setattr(answer, "__name__", "all_finite")
    found = failure(answer)
    assert found is None if why is None else why in found
