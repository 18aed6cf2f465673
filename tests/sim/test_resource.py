"""A resource does what it has room for, as early as it can."""

import random

import pytest

from dpkit.sim.clock.resources import (
    FULL,
    KEPT,
    ResidualBandwidth,
    Resource,
    Share,
    earliest,
    earliest_fit,
)


def reserve(resources, ready, duration):
    """Occupy all of them at once, as early as possible; return when."""
    start = earliest(resources, ready, duration)
    for resource in resources:
        resource.occupy(start, duration)
    return start


def test_one_after_another():
    port = Resource()
    assert [reserve([port], 0, 2) for _ in range(3)] == [0, 2, 4]
    assert port.marks == [0, 6]  # what touches is joined


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


def test_shares_run_side_by_side():
    """The worked case of the module: two halves, then a quarter."""
    path = Resource()
    half, quarter = Share(path, FULL // 2), Share(path, FULL // 4)
    assert reserve([half], 0, 5) == 0
    assert reserve([half], 3, 5) == 3
    assert reserve([quarter], 3, 2) == 5
    assert path.marks == [0, 3, 5, 7, 8]
    assert path.loads == [n * FULL // 4 for n in (2, 4, 3, 2, 0)]
    assert reserve([quarter], 0, 4) == 5
    assert reserve([path], 0, 1) == 9


def test_slow_copies_wait_for_a_port_and_not_for_the_path():
    path = Resource()
    ports = [Resource() for _ in range(2)]
    starts = [reserve([p, Share(path, FULL // 3)], 0, 6) for p in ports * 2]
    assert starts == [0, 0, 6, 6]


@pytest.mark.parametrize("seed", range(5))
def test_shares_never_add_up_to_more_than_the_whole(seed):
    """Against a plain list: as early as possible, and never too much."""
    random.seed(seed)
    path, taken = Resource(), [0] * 1000
    for _ in range(150):
        share = random.choice([FULL, FULL // 2, FULL // 3, FULL // 10])
        ready, duration = random.randrange(80), random.choice([1, 2, 4])

        def fits(start, duration=duration, share=share):
            return max(taken[start : start + duration]) + share <= FULL

        start = reserve([Share(path, share)], ready, duration)
        assert start == next(t for t in range(ready, 900) if fits(t))
        for t in range(start, start + duration):
            taken[t] += share


def test_what_lies_far_back_is_taken_for_busy():
    port = Resource()
    for i in range(KEPT + 1):
        reserve([port], 3 * i + 1, 1)
    assert len(port.marks) == len(port.loads) < 2 * KEPT
    assert reserve([port], 0, 1) > KEPT
    assert reserve([port], 3 * KEPT - 2, 1) == 3 * KEPT - 1


def test_what_others_leave_takes_longer():
    """The worked case above ``earliest_fit``."""
    port = Resource()
    Share(port, FULL // 4).occupy(0, 4)
    assert earliest_fit([ResidualBandwidth(port)], 0, 6) == (0, 8)
    ResidualBandwidth(port).occupy(0, 8)
    assert (port.marks, port.loads) == ([0, 4, 8], [FULL, 3 * FULL // 4, 0])
    assert earliest_fit([ResidualBandwidth(port)], 0, 6) == (8, 6)


def test_less_than_half_is_waited_for():
    port = Resource()
    Share(port, FULL // 2 + 1).occupy(0, 4)
    assert earliest_fit([ResidualBandwidth(port)], 0, 6) == (4, 6)
    assert earliest_fit([ResidualBandwidth(port)], 1, 6) == (4, 6)


def test_the_slowest_of_several_ports_decides():
    one, two = Resource(), Resource()
    Share(one, FULL // 4).occupy(0, 40)
    Share(two, FULL // 2).occupy(0, 40)
    assert earliest_fit(
        [ResidualBandwidth(one), ResidualBandwidth(two)], 0, 6
    ) == (0, 12)


@pytest.mark.parametrize("seed", range(5))
def test_a_rest_is_what_a_plain_list_leaves(seed):
    """Never more than the whole, and as long as what is left asks for."""
    random.seed(seed)
    port, taken = Resource(), [0] * 2000
    for _ in range(150):
        share = random.choice([FULL // 3, FULL // 5, FULL // 10, None])
        needed = (
            ResidualBandwidth(port) if share is None else Share(port, share)
        )
        ready, duration = random.randrange(80), random.choice([4, 12, 60])
        start, longer = earliest_fit([needed], ready, duration)
        assert start >= ready
        room = FULL - max(taken[start : start + longer])
        if share is None:
            assert room >= FULL // 2
            assert longer == -(-duration * FULL // room)
        else:
            assert longer == duration
        needed.occupy(start, longer)
        for t in range(start, start + longer):
            taken[t] += room if share is None else share
            assert taken[t] <= FULL
