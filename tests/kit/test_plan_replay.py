"""Plans on the clock: as in closed form, and what contention does."""

import math
from dataclasses import replace

import pytest

from dpkit.plans.algorithms import allreduce_plan
from dpkit.plans.alpha_beta import ideal_cluster, rates_of
from dpkit.plans.bounds import lower_bounds
from dpkit.plans.costs import (
    CHAINS,
    Rates,
    hierarchical_seconds,
    seconds,
)
from dpkit.plans.direct import pairwise
from dpkit.plans.doubling import core
from dpkit.plans.plan import Message, Plan, count
from dpkit.plans.replay import replay_plan
from dpkit.plans.rings import ring
from dpkit.plans.trees import star
from dpkit.sim.hardware.clusters import cluster

SIZES = [1, 2, 3, 4, 5, 8, 17]
RATES = Rates(3e-6, 1 / 16e9, 1 / 200e9)
PICOSECOND = 1e-12  # the clock rounds each duration to one
NODES = [(p, g) for p in SIZES for g in range(1, p + 1) if p % g == 0]


def near(plan, expected):
    """Allow for the rounding of every message and addition in a chain."""
    return pytest.approx(expected, abs=2 * len(plan.steps) * PICOSECOND)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", CHAINS)
def test_without_contention_the_closed_form_holds(name, p):
    plan, length = allreduce_plan(name, p), 1000 * math.lcm(p, core(p))
    for rates in (
        RATES,
        Rates(3e-6, 0, 0),
        Rates(0, 1 / 16e9, 0),
        Rates(0, 0, 1 / 200e9),
        Rates(1e-3, 1 / 16e9, 1 / 2e9),
    ):
        found = replay_plan(plan, length, ideal_cluster(p, rates)).makespan
        assert found == near(plan, seconds(name, p, 4 * length, rates))


@pytest.mark.parametrize(("p", "g"), NODES)
def test_nodes_hold_the_closed_form_too(p, g):
    plan, length = allreduce_plan("hierarchical", p, g), 1000 * p
    across = Rates(20e-6, 1 / 3e9, RATES.gamma)
    network = ideal_cluster(p, across).link
    machine = ideal_cluster(p, RATES)
    machine = replace(machine, ranks_per_node=g, network=network)
    found = replay_plan(plan, length, machine).makespan
    expected = hierarchical_seconds(
        p, 4 * length, g, inside=RATES, across=across
    )
    assert found == near(plan, expected)


@pytest.mark.parametrize("p", SIZES[1:])
def test_all_to_all_takes_a_message_for_each_step(p):
    plan = pairwise(p)
    found = replay_plan(plan, 1000 * p, ideal_cluster(p, RATES)).makespan
    message = RATES.alpha + 4000 * RATES.beta
    assert len(plan.steps) == (p if p > 2 else 1)
    assert found == near(plan, len(plan.steps) * message)


@pytest.mark.parametrize("p", SIZES[1:])
@pytest.mark.parametrize("name", CHAINS)
def test_ragged_chunks_take_a_little_longer(name, p):
    """No longer than with a buffer that all chunks divide."""
    plan, rates = allreduce_plan(name, p), Rates(0, 1e-9, 1e-10)
    for length in (p + 1, 10 * p - 1, 3):
        up = -(-length // (p * core(p))) * p * core(p)
        machine = ideal_cluster(p, rates)
        found = replay_plan(plan, length, machine).makespan
        least = lower_bounds(p, 4 * length, rates).seconds
        assert least * (1 - 1e-9) <= found
        assert found <= seconds(name, p, 4 * up, rates) * (1 + 1e-9)


def test_a_star_on_160_mb():
    """The first exact case: 60, 80 and 15 ms."""
    rates, length = Rates(0, 1 / 16e9), 40_000_000
    for plan, milliseconds in (
        (star(4), 60),
        (star(5), 80),  # the fifth is the CPU, where all meet
        (allreduce_plan("direct", 4), 15),
        (ring(4), 15),
    ):
        machine = ideal_cluster(plan.world_size, rates)
        found = replay_plan(plan, length, machine).makespan
        assert found == pytest.approx(1e-3 * milliseconds)


def by_way_of_the_host(cluster):
    return replace(cluster, link=replace(cluster.link, peer_to_peer=False))


@pytest.mark.parametrize("p", SIZES[1:])
@pytest.mark.parametrize("name", CHAINS)
def test_on_one_shared_path_all_bytes_queue(name, p):
    plan, length = allreduce_plan(name, p), 1000 * math.lcm(p, core(p))
    rates = Rates(0, 1 / 16e9)
    machine = by_way_of_the_host(ideal_cluster(p, rates))
    found = replay_plan(plan, length, machine).makespan
    sent = 4 * sum(counted.sent for counted in count(plan, length))
    assert found == pytest.approx(sent * rates.beta)


def test_on_a_shared_path_a_ring_is_no_better_than_a_star():
    machine = by_way_of_the_host(ideal_cluster(8, RATES))
    found = [replay_plan(make(8), 8000, machine).makespan
             for make in (ring, star)]  # fmt: skip
    assert found[0] > found[1]


def test_a_rank_receives_no_more_before_it_has_added():
    """Two messages to one rank: the second waits for the first's addition."""
    steps = [
        [Message(1, 0, 0, 1, adds=True)],
        [Message(2, 0, 0, 1, adds=True)],
    ]
    plan = Plan("two", 3, 1, steps)
    machine = ideal_cluster(3, Rates(0, 1, 1))
    timeline = replay_plan(plan, 1, machine, element_bytes=1)
    rank = [s for s in timeline.spans if s.device == "rank 0"]
    assert [(s.stream, s.start, s.end) for s in rank] == [
        ("receiving", 0, 1),
        ("adding", 1, 2),
        ("receiving", 2, 3),
        ("adding", 3, 4),
    ]


def test_ranks_send_and_receive_at_once():
    timeline = replay_plan(
        ring(2), 2, ideal_cluster(2, Rates(0, 1, 0.5)), element_bytes=1
    )
    rank = [s for s in timeline.spans if s.device == "rank 0"]
    assert sorted((s.start, s.stream) for s in rank) == [
        (0, "receiving"),
        (0, "sending"),
        (1, "adding"),
        (1.5, "receiving"),
        (1.5, "sending"),
    ]


def test_a_rank_adds_when_it_has_sent():
    """What is sent must not change on its way."""
    step = [Message(0, 1, 0, 3), Message(2, 0, 3, 4, adds=True)]
    machine = ideal_cluster(3, Rates(0, 1, 1))
    timeline = replay_plan(
        Plan("one", 3, 4, [step]), 4, machine, element_bytes=1
    )
    rank = {s.stream: s for s in timeline.spans if s.device == "rank 0"}
    assert (rank["receiving"].end, rank["sending"].end) == (1, 3)
    assert rank["adding"].start == 3


def test_ranks_that_do_not_meet_do_not_wait():
    steps = [
        [Message(1, 0, 0, 1, adds=True)],
        [Message(2, 3, 0, 1, adds=True)],
    ]
    timeline = replay_plan(
        Plan("apart", 4, 1, steps), 1, ideal_cluster(4, Rates(1, 0, 0))
    )
    assert timeline.makespan == 1


def test_an_empty_message_is_not_sent():
    timeline = replay_plan(ring(4), 1, ideal_cluster(4, Rates(1, 0, 0)))
    sent = [s for s in timeline.spans if s.stream == "sending"]
    assert len(sent) == 6
    assert all(s.num_bytes == 4 for s in sent)


def test_known_hardware_launches_too():
    machine = cluster(4, "v100", "nvlink2", hosts="per_device")
    found = replay_plan(ring(4), 40_000_000, machine)
    rates = rates_of(machine.accelerator, machine.link)
    least = seconds("ring", 4, 160e6, rates)
    assert least < found.makespan < 1.1 * least
    assert any(s.kind == "launch" for s in found.spans)
    assert found.label == "replayed (v100, nvlink2)"


def test_too_few_devices():
    with pytest.raises(ValueError, match=r"devices: 2, ranks: 3\)"):
        replay_plan(ring(3), 3, ideal_cluster(2, RATES))
