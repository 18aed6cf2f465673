"""A resource does one thing at a time, as early as it can."""

import random

import pytest

from dpkit.theory.clock.resources import KEPT, Resource, reserve


def test_one_after_another():
    port = Resource()
    assert [reserve([port], 0, 2) for _ in range(3)] == [0, 2, 4]


def test_a_gap_is_used_if_the_work_fits():
    port = Resource()
    reserve([port], 0, 1)
    reserve([port], 5, 1)
    assert reserve([port], 0, 5) == 6
    assert reserve([port], 0, 4) == 1
    assert reserve([port], 0, 2) == 11


def test_two_resources_are_taken_together():
    one, two = Resource(), Resource()
    reserve([one], 0, 3)
    reserve([two], 4, 3)
    assert reserve([one, two], 0, 1) == 3
    assert reserve([one, two], 0, 2) == 7


def test_work_without_resources_starts_when_it_is_ready():
    assert reserve([], 2, 1) == 2


@pytest.mark.parametrize("seed", range(5))
def test_nothing_overlaps(seed):
    """Against a plain list of all that was reserved."""
    random.seed(seed)
    ports = [Resource() for _ in range(3)]
    taken = [[] for _ in ports]
    for _ in range(200):
        chosen = random.sample(range(3), random.choice([1, 1, 2]))
        ready, duration = random.randrange(120), random.choice([1, 2, 4])
        start = reserve([ports[i] for i in chosen], ready, duration)
        assert start >= ready
        for i in chosen:
            for begin, end in taken[i]:
                assert start >= end or start + duration <= begin
            taken[i].append((start, start + duration))


def test_what_lies_far_back_is_taken_for_busy():
    port = Resource()
    for i in range(2 * KEPT + 1):
        reserve([port], 2 * i, 1)
    assert len(port.starts) == len(port.ends) == KEPT + 1
    assert reserve([port], 0, 1) > 2 * KEPT
