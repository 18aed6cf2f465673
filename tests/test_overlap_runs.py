"""Steps of the chapter on overlap: what the formulas say, and the clock."""

import pytest
import torch

import dpkit
from dpkit import streams
from dpkit.lab.overlap.runs import (
    ONE_EACH,
    predicted_seconds,
    simulated_step,
    wide,
)
from dpkit.theory.clock.record import SECOND
from dpkit.theory.hardware.clusters import cluster
from dpkit.theory.overlap import ring_seconds

TOLD = {"make": wide, "num_devices": 3, "rows": 512}


@pytest.mark.parametrize("link", ["nvlink2", "ethernet25"])
@pytest.mark.parametrize("length", [10, 100_000, 4_000_000])
def test_the_cost_of_a_ring(link, length):
    three = cluster(3, "v100", link, hosts="per_device")
    settings = {"backing": "meta", "hosts": "per_device", "link": link}
    with dpkit.sim.machine(**settings):
        devices = dpkit.devices(3, "sim")
        flats = [torch.empty(length, device=d) for d in devices]
        events = {d: streams.record_event(d) for d in devices}
        start = max(event.issued for event in events.values())
        with streams.beside(events):
            dpkit.allreduce(flats, "mean", "ring")
            end = max(streams.record_event(d).mark for d in devices)
        del flats, events
    expected = ring_seconds(4 * length, three)
    # The first launches come before anything that could hide them.
    assert expected <= (end - start) / SECOND < expected + 25e-6


@pytest.mark.parametrize("link", ["nvlink2", "ethernet25"])
@pytest.mark.parametrize("megabytes", [1.0, 20.0])
def test_the_recurrence_predicts_other_sizes(link, megabytes):
    three = cluster(3, "v100", link, hosts="per_device")
    noted = simulated_step(ONE_EACH, link=link, **TOLD)
    assert len(noted.ready) == 6
    step = simulated_step(megabytes, link=link, **TOLD)
    predicted = predicted_seconds(noted, megabytes, three)
    assert step.seconds == pytest.approx(predicted, rel=0.02)


def test_a_step_ends_with_backward_or_with_the_last_bucket():
    for overlap in (True, False):
        step = simulated_step(ONE_EACH, overlap, link="ethernet25", **TOLD)
        assert step.ready == sorted(step.ready)
        assert step.seconds > step.backward_end == step.ready[-1]
        assert sum(step.bucket_bytes) == 4 * (18_403_328 + 6)  # and flags
