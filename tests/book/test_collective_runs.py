"""Runs of the collectives in their chapter, and a recorded table of NCCL."""

import json

import pytest
import torch

import dpkit
from dpbook.collectives.runs import num_launches, timed
from dpkit.plans.alpha_beta import errors, fit
from dpkit.plans.bounds import (
    bus_bandwidth,
    in_switch_share,
    seconds_at,
)
from dpkit.plans.costs import ring_chain
from tests.repository import ROOT

DATA = ROOT / "book" / "_data" / "nccl_h200.json"


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
        int(n): seconds_at(
            "allreduce", 8, num_bytes=int(n), bytes_per_second=1e9 * rate
        )
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
    assert (
        bus_bandwidth(
            "allreduce", 8, num_bytes=largest, seconds=times[largest]
        )
        > link
    )
    assert in_switch_share(8) * largest / times[largest] < 0.7 * link
