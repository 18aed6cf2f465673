"""Runs of allreduce: what is sent, and simulated times."""

import pytest
import torch

import dpkit
from dpkit.plans.algorithms import ALLREDUCE, allreduce_plan
from dpkit.plans.alpha_beta import ideal_cluster, rates_of
from dpkit.plans.costs import (
    CHAINS,
    Rates,
    hierarchical_seconds,
    seconds,
)
from dpkit.plans.plan import count
from dpkit.plans.replay import replay_plan
from dpkit.sim.hardware import ACCELERATORS, LINKS
from dpkit.traffic import Traffic

MB = 10**6


def sent_bytes(algorithm, p, length):
    """Return what each of p devices sends."""
    devices = dpkit.devices(p, "sim")
    tensors = [torch.ones(length, device=d) for d in devices]
    with Traffic() as traffic:
        dpkit.allreduce(tensors, "sum", algorithm)
    return [traffic.sent[device] for device in devices]


def timed(algorithm, p, num_bytes, **machine):
    """Return the simulated seconds of an allreduce, without values."""
    with dpkit.sim.machine(backing="meta", **machine):
        devices = dpkit.devices(p, "sim")
        tensors = [torch.empty(num_bytes // 4, device=d) for d in devices]
        dpkit.synchronize(devices)
        with dpkit.sim.trace() as timeline:
            dpkit.allreduce(tensors, "sum", algorithm)
            dpkit.synchronize(devices)
    return timeline.makespan


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
    found = timed(algorithm, 8, 160 * MB, hosts="per_device")
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
    found = timed(algorithm, p, 24 * MB, **parts)
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
    )
    expected = hierarchical_seconds(
        8, 160 * MB, 4, inside=inside, across=across
    )
    assert found == pytest.approx(expected, rel=1e-6)
