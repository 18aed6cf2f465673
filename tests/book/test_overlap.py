"""When buckets have been reduced: worked by hand, and on the clock."""

import pytest

from dpbook.formulas.overlap import bucket_ends, ring_seconds, step_seconds
from dpkit.plans.alpha_beta import ideal_cluster
from dpkit.plans.costs import Rates
from dpkit.plans.replay import replay_plan
from dpkit.plans.rings import ring
from dpkit.sim.clock import DEFAULT, Clock

SIDE = DEFAULT + 1  # the stream on which buckets leave
EXACT = {"rel": 1e-9, "abs": 0}


def test_a_bucket_waits_for_its_gradients_and_for_the_one_before():
    assert bucket_ends([2, 4, 20], [3, 5, 1]) == [5, 10, 21]
    assert bucket_ends([], []) == []
    assert bucket_ends([0, 0, 0], [1, 2, 3]) == [1, 3, 6]


def test_a_step_is_as_long_as_the_longer_of_backward_and_the_last_bucket():
    assert step_seconds(1, 10, [2, 4], [1, 1], update=0.5) == 11.5
    assert step_seconds(1, 10, [2, 10], [1, 1], update=0.5) == 12.5
    assert step_seconds(1, 10, [2, 10], [9, 9]) == 1 + 20
    assert step_seconds(1, 10, [2, 10], [9, 9], overlap=False) == 29
    assert step_seconds(1, 10, [], []) == 11


def test_as_many_times_as_costs():
    with pytest.raises(ValueError, match=r"\(times: 2, costs: 1\)"):
        bucket_ends([1, 2], [1])


def compute(clock, seconds):
    for r in range(2):
        clock.compute(r, "compute", seconds=seconds)


def reduce(clock, seconds):
    """Copy on the side streams, once what was computed so far is done."""
    for r in range(2):
        clock.mark_stream(r, SIDE, clock.mark_stream(r, DEFAULT))
        clock.current[r] = SIDE
    clock.copy(0, 1, seconds=seconds, num_bytes=1)
    for r in range(2):
        clock.current[r] = DEFAULT


def step_on_clock(forward, parts, costs, update, overlap):
    """Return the seconds of a step on two devices that launch in no time.

    Args:
        forward: The seconds of forward.
        parts: Those of each part of backward; a bucket is full after it.
        costs: The seconds of the copy that stands for reducing the bucket.
        update: The seconds of the update.
        overlap: Whether a bucket leaves as soon as it is full.
    """
    clock = Clock(ideal_cluster(2, Rates(0, 0)))
    compute(clock, forward)
    for part, cost in zip(parts, costs):
        compute(clock, part)
        if overlap:
            reduce(clock, cost)
    if not overlap:
        for cost in costs:
            reduce(clock, cost)
    for r in range(2):
        clock.mark_stream(r, DEFAULT, clock.mark_stream(r, SIDE))
    compute(clock, update)
    for r in range(2):
        clock.wait(r, DEFAULT)
    return clock.now()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("parts", "costs"),
    [
        ([2.0, 2.0, 2.0], [3.0, 3.0, 1.0]),  # each waits for the one before
        ([2.0, 2.0, 16.0], [3.0, 0.5, 1.0]),  # backward is the longer
        ([5.0, 0.25, 0.125], [0.5, 7.0, 0.75]),
    ],
)
def test_a_step_takes_as_long_on_the_clock(parts, costs, overlap):
    ready = [sum(parts[: i + 1]) for i in range(len(parts))]
    told = step_seconds(
        3.0, sum(parts), ready, costs, update=0.5, overlap=overlap
    )
    found = step_on_clock(3.0, parts, costs, update=0.5, overlap=overlap)
    assert told == pytest.approx(found, **EXACT)


@pytest.mark.parametrize("p", [2, 3, 4, 7])
def test_a_ring_takes_as_long_on_the_clock(p):
    """Where the host takes no time, and each device has its own ports."""
    # In whole milliseconds: the clock rounds to picoseconds.
    machine = ideal_cluster(p, Rates(0.25, 1 / 512, 3 / 1024))
    length = 256 * p
    found = replay_plan(ring(p), length, machine).makespan
    told = ring_seconds(4 * length, machine, "sum")
    assert told == pytest.approx(found, **EXACT)
