"""Runs of the collectives: what they send, and simulated times."""

import json
from pathlib import Path

import pytest
import torch

import dpkit
from dpkit.lab.collectives.runs import num_launches, sent_bytes, timed
from dpkit.theory.collectives.algorithms import ALLREDUCE, allreduce_plan
from dpkit.theory.collectives.alpha_beta import (
    errors,
    fit,
    ideal_cluster,
    rates_of,
)
from dpkit.theory.collectives.bounds import (
    bus_bandwidth,
    in_switch_share,
    seconds_at,
)
from dpkit.theory.collectives.costs import (
    CHAINS,
    Rates,
    hierarchical_seconds,
    ring_chain,
    seconds,
)
from dpkit.theory.collectives.plans import count
from dpkit.theory.collectives.replay import replay_plan
from dpkit.theory.hardware import ACCELERATORS, LINKS

DATA = Path(__file__).parent.parent / "book" / "_data" / "nccl_h200.json"
MB = 10**6


@pytest.mark.parametrize("algorithm", ALLREDUCE)
def test_the_runner_sends_what_the_plan_says(algorithm):
    name = "hierarchical:2" if algorithm == "hierarchical" else algorithm
    for length in (0, 1, 5, 6, 100):
        plan = allreduce_plan(name, 6)
        expected = [4 * port.sent for port in count(plan, length)]
        assert sent_bytes(name, 6, length) == expected


@pytest.mark.parametrize("algorithm", ["star", "tree", "ring"])
def test_160_mb_on_8_devices_and_a_switch(algorithm):
    """Within 2 % of the closed form, on simulated V100 and NVLink."""
    rates = rates_of(ACCELERATORS["v100"], LINKS["nvlink2"])
    found = timed(algorithm, 8, 160 * MB, hosts="per_device").makespan
    expected = seconds(algorithm, 8, 160 * MB, rates)
    assert expected < found < 1.02 * expected


@pytest.mark.parametrize("algorithm", CHAINS)
@pytest.mark.parametrize("p", [2, 3, 8])
def test_ideal_devices_take_what_the_replay_takes(algorithm, p):
    rates = Rates(2e-6, 1 / 16e9, 1 / 200e9)
    machine = ideal_cluster(p, rates)
    parts = {
        "accelerator": machine.accelerator,
        "link": machine.link,
        "host": machine.host,
    }
    found = timed(algorithm, p, 24 * MB, **parts).makespan
    plan = allreduce_plan(algorithm, p)
    replayed = replay_plan(plan, 6 * MB, machine).makespan
    assert found == pytest.approx(replayed, rel=1e-6)
    assert found == pytest.approx(seconds(algorithm, p, 24 * MB, rates))


def test_nodes_take_what_the_closed_form_says():
    inside, across = Rates(2e-6, 1 / 150e9), Rates(2e-5, 1 / 12e9)
    machine = ideal_cluster(8, inside)
    found = timed(
        "hierarchical:4",
        8,
        160 * MB,
        accelerator=machine.accelerator,
        link=machine.link,
        host=machine.host,
        ranks_per_node=4,
        network=ideal_cluster(8, across).link,
    ).makespan
    expected = hierarchical_seconds(8, 160 * MB, 4, inside, across)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "launches"), [("ring", 35), ("library", 1)]
)
def test_a_process_launches_each_message_or_one_kernel(algorithm, launches):
    """Ring of 8: 14 steps send and receive, 7 of them add."""
    found = timed(algorithm, 8, 16_000, hosts="per_device")
    assert num_launches(found) == launches


def test_a_run_leaves_alone_what_lives_on_the_devices():
    alone = timed("ring", 2, 8).makespan
    kept = torch.ones(3, device=dpkit.devices(2, kind="sim")[0])
    assert timed("ring", 2, 8).makespan == alone
    assert kept.tolist() == [1, 1, 1]


# -- the recorded table


def table(name):
    record = json.loads(DATA.read_text())["tables"][name]
    rows = record["bus_gigabytes_per_second"].items()
    return {
        int(n): seconds_at("allreduce", 8, int(n), 1e9 * rate)
        for n, rate in rows
    }


def of_ring(n):
    return ring_chain(8, n)


def test_a_fit_to_h200_predicts_sizes_that_it_has_not_seen():
    times = table("fitted")
    fitted = dict(list(times.items())[::2])
    rates = fit(fitted, of_ring)
    held_out = {n: t for n, t in times.items() if n not in fitted}
    assert len(held_out) == 3
    for error in errors(held_out, of_ring, rates).values():
        assert abs(error) < 0.12
    others = {n: t for n, t in table("another").items() if n >= 2**24}
    for error in errors(others, of_ring, rates).values():
        assert abs(error) < 0.11


def test_h200_beat_their_links_and_do_not():
    times = table("fitted")
    largest = max(times)
    link = json.loads(DATA.read_text())["link_bytes_per_second"]
    assert bus_bandwidth("allreduce", 8, largest, times[largest]) > link
    assert in_switch_share(8) * largest / times[largest] < 0.7 * link
