"""Simulated steps of the wrapper and of processes, and what they cost."""

import json
from functools import cache

import pytest
from torch import nn

from dpbook.common.resnet import resnet18
from dpbook.data_parallelism_concise.pictures import CUTS, draw_statistics
from dpbook.two_devices.pictures import PARTS, shares
from dpbook.two_devices.scaling import (
    launching_before_backward,
    processes_step,
    wrapper_step,
)
from dpkit.sim.hardware.clusters import cluster
from dpkit.sim.hardware.costs import copy_seconds
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
MACHINES = {
    "pcie": {"accelerator": "v100-pcie", "link": "pcie3"},
    "nvlink": {"accelerator": "v100", "link": "nvlink2"},
    "h100": {"accelerator": "h100", "link": "nvlink4"},
}

LINK = cluster(2, **MACHINES["pcie"]).link


@cache
def wrapper(machine, k, rows):
    return wrapper_step(k, rows, **MACHINES[machine])


@pytest.mark.parametrize("machine", ["pcie", "nvlink"])
@pytest.mark.parametrize("version", ["pytorch", "mxnet"])
def test_a_pair_of_v100_gains_what_was_published(machine, version):
    """ResNet-18, 256 images on each device: within 20 % of 1.63 and 1.81."""
    published = json.loads((DATA / "published_resnet18.json").read_text())
    seconds = published[version]["seconds_per_epoch"]
    one, two = wrapper(machine, 1, 256), wrapper(machine, 2, 512)
    gain = 2 * one.seconds / two.seconds
    assert gain == pytest.approx(seconds["1"] / seconds["2"], rel=0.2)


def test_the_wrapper_copies_what_the_formula_says():
    """All parameters and buffers there, all gradients back; then scores."""
    resnet = resnet18()
    there = [*resnet.parameters(), *resnet.buffers()]
    back = list(resnet.parameters())
    spans = wrapper("pcie", 2, 512).timeline.spans
    received = [
        span.num_bytes
        for span in spans
        if span.device == "sim:1" and span.name == "copy from sim:0"
    ]
    sent = [
        span.num_bytes
        for span in spans
        if span.device == "sim:1" and span.name == "copy to sim:0"
    ]
    scores = 256 * 10 * 4
    assert sorted(received) == sorted([*(t.nbytes for t in there), scores])
    assert sorted(sent) == sorted([*(t.nbytes for t in back), scores])
    copies = sum(copy_seconds(LINK, t.nbytes) for t in [*there, *back])
    predicted = wrapper("pcie", 1, 256).seconds + copies
    assert wrapper("pcie", 2, 512).seconds == pytest.approx(
        predicted, rel=0.03
    )


def test_a_fast_device_gains_little_by_the_wrapper():
    """Two take 0.82 of the time of one, four 1.17; with processes 0.58."""
    one = wrapper("h100", 1, 256).seconds
    assert wrapper("h100", 2, 256).seconds > 0.75 * one
    assert wrapper("h100", 4, 256).seconds > 1.1 * one
    assert processes_step(2, 256, **MACHINES["h100"]).seconds < 0.65 * one


def small():
    """Return a convolution and a dense layer for any images in colour."""
    convolution = nn.Conv2d(3, 8, 5, stride=2)
    pool = nn.AdaptiveAvgPool2d(2)
    return nn.Sequential(convolution, pool, nn.Flatten(), nn.Linear(32, 10))


@pytest.mark.parametrize("step", [wrapper_step, processes_step])
def test_images_of_another_shape(step):
    """The copies from the host grow with the pixels of a batch."""
    told = {"make": small, **MACHINES["pcie"]}
    one = step(2, 512, shape=(3, 64, 64), **told)
    four = step(2, 512, shape=(3, 128, 128), **told)
    images = [
        sum(
            span.num_bytes
            for span in found.timeline.spans
            if span.name == "copy from host" and span.num_bytes > 10**6
        )
        for found in (one, four)
    ]
    assert images == [512 * 3 * size * size * 4 for size in (64, 128)]
    assert four.seconds > 3 * one.seconds


def test_shares_add_up_and_tell_the_ways_of_copies_apart():
    timeline = wrapper("pcie", 2, 512).timeline
    found = shares(timeline)
    assert list(found) == ["sim:0", "sim:1"]
    table = timeline.summary().devices
    for device, parts in found.items():
        assert tuple(parts) == PARTS
        assert sum(parts.values()) == pytest.approx(1)
        assert min(parts.values()) > -1e-9
        busy = table[device].busy / timeline.makespan
        assert parts["computing"] == pytest.approx(busy)
        assert parts["replicating"] > parts["returning"] > 0.04
        assert parts["idle"] < 0.05
        expected = copy_seconds(LINK, 256 * 28 * 28 * 4)
        if device == "sim:0":  # all labels
            expected += copy_seconds(LINK, 512 * 8)
        images = parts["images"] * timeline.makespan
        assert images == pytest.approx(expected, rel=1e-3)


def test_launches_before_backward_are_those_of_forward_and_loss():
    timeline = wrapper("h100", 1, 256).timeline
    python = [s for s in timeline.spans if s.stream == "python"]
    launches = [s for s in python if s.kind == "launch"]
    forward = [s for s in launches if s.name.startswith(("conv", "cudnn"))]
    launching = launching_before_backward(timeline)
    assert launching < sum(s.end - s.start for s in launches)  # the update
    assert launching > sum(s.end - s.start for s in forward)
    assert launching == pytest.approx(
        sum(s.end - s.start for s in launches if s.start < _first(timeline))
    )


def _first(timeline):
    """Return when backward begins."""
    return min(s.start for s in timeline.spans if "backward" in s.stream)


def test_rows_whose_statistics_are_taken_together_have_a_frame():
    ways = [cuts for uses in CUTS.values() for cuts in uses]
    drawn = draw_statistics().svg
    # One patch is the ground of the figure.
    assert drawn.count('id="patch_') == 1 + sum(len(c) - 1 for c in ways)
    assert all(name in drawn for name in CUTS)
