"""Steps of the chapter on overlap: what the formulas say, and the clock."""

import pytest
import torch
from torch import nn

import dpkit
from dpbook.formulas.overlap import ring_seconds
from dpbook.overlap.runs import (
    ALL_IN_ONE,
    ONE_EACH,
    predicted_seconds,
    simulated_step,
    wide,
)
from dpkit import streams
from dpkit.sim.clock.record import SECOND
from dpkit.sim.hardware.clusters import cluster

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
        with streams.on_side_streams(events):
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


def small():
    """Return a convolution and a dense layer for any images in colour."""
    convolution = nn.Conv2d(3, 8, 5, stride=2)
    pool = nn.AdaptiveAvgPool2d(2)
    return nn.Sequential(convolution, pool, nn.Flatten(), nn.Linear(32, 10))


def test_images_of_another_shape_take_another_time():
    told = {"make": small, "num_devices": 2, "rows": 512}
    one = simulated_step(25, shape=(3, 64, 64), **told)
    four = simulated_step(25, shape=(3, 128, 128), **told)
    assert one.bucket_bytes == four.bucket_bytes
    assert 3 < four.backward_end / one.backward_end < 5  # pixels


def test_a_bucket_by_another_algorithm():
    told = {"make": wide, "num_devices": 8, "link": "ethernet25"}
    ring, star = (
        simulated_step(ALL_IN_ONE, algorithm=name, **told)
        for name in ("ring", "star")
    )
    # A port of the root sends 7 n, a port of a ring 2 · 7/8 n.
    after = [step.seconds - step.backward_end for step in (ring, star)]
    assert after[1] / after[0] == pytest.approx(2 * 7 / (2 * 7 / 8), rel=0.1)


def test_a_step_ends_with_backward_or_with_the_last_bucket():
    for overlap in (True, False):
        step = simulated_step(ONE_EACH, overlap, link="ethernet25", **TOLD)
        assert step.ready == sorted(step.ready)
        assert step.seconds > step.backward_end == step.ready[-1]
        assert sum(step.bucket_bytes) == 4 * (18_403_328 + 6)  # and flags
