"""The formulas of the three ways, beside what simulated devices do."""

import json
from itertools import product
from pathlib import Path

import pytest

from dpbook.explore.way_map import winner
from dpbook.formulas.splits import ONE_DEVICE, WAYS, boundary, estimate
from dpbook.splitting.ports import (
    cost_of_messages,
    machine_balance,
    port_seconds,
    product_seconds,
    step_at_boundary,
)
from dpbook.splitting.three_ways import (
    cost,
    data_parallelism,
    layer_partitioning,
    network_partitioning,
    traced,
)
from dpkit.schedules.bubble import hops_waited
from dpkit.sim.hardware.clusters import cluster
from tests.weekly import few_of, weekly

STEPS = {
    "data": data_parallelism,
    "network": network_partitioning,
    "layer": layer_partitioning,
}


def simulated(way, link, rows, width, k=4):
    """The real program on devices with room for every network."""
    room = {"memory_bytes": 10**15, "link": link}
    return cost(traced(STEPS[way], k, rows=rows, width=width, depth=8, **room))


# Points of the map of the chapter, far enough from its borders.
POINTS = [
    ("nvlink2", 4096, 4096, "data"),
    ("nvlink2", 256, 4096, "layer"),
    ("nvlink2", 65536, 1024, "data"),
    ("nvlink2", 256, 16384, "layer"),
    ("nvlink2", 16384, 8192, "data"),
    ("pcie3", 4096, 4096, "network"),
    ("pcie3", 256, 4096, "one device"),
    ("pcie3", 65536, 1024, "data"),
    ("pcie3", 65536, 4096, "data"),
    ("pcie3", 1024, 8192, "network"),
]
HERE = [POINTS[1], POINTS[5], POINTS[7]]  # where each way wins


@pytest.mark.parametrize(
    ("link", "rows", "width", "best"), few_of(POINTS, HERE)
)
def test_the_map_names_the_way_that_wins(link, rows, width, best):
    """Each time within 15 %, and the same winner by both."""
    machine = cluster(4, "v100", link)
    found = {way: simulated(way, link, rows, width).seconds for way in WAYS}
    for way in WAYS:
        told = estimate(
            way, rows=rows, width=width, depth=8, cluster=machine
        ).seconds
        assert told == pytest.approx(found[way], rel=0.15), way
    found["one device"] = simulated("data", link, rows, width, 1).seconds
    assert min(found, key=found.get) == best
    assert winner(rows, width, 8, machine) == best


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("link", "k"), [("nvlink2", 4), ("pcie3", 4), ("nvlink2", 2)]
)
def test_the_parts_of_an_estimate(way, link, k):
    """Within a fifth, where products are large; parameters nearly exact."""
    room = {"memory_bytes": 10**15, "link": link}
    step = traced(STEPS[way], k, rows=8192, width=4096, depth=8, **room)
    found = cost(step)
    told = estimate(
        way, rows=8192, width=4096, depth=8, cluster=cluster(k, "v100", link)
    )
    # Biases of layers split by their inputs are on every device.
    assert told.parameter_bytes == pytest.approx(
        found.parameter_bytes, rel=1e-3
    )
    assert 0.9 < told.computing / found.computing < 1.2
    sending = port_seconds(step, shared=link == "pcie3")
    assert 0.9 < told.sending / sending < 1.1
    assert 0.75 < told.activation_bytes / found.activation_bytes < 1.25


# A port of its own for each device, and one path for all.
@pytest.mark.parametrize("link", ["ethernet25", "pcie3"])
@pytest.mark.parametrize("k", few_of([2, 3, 4, 8], [2, 3]))
@pytest.mark.parametrize("way", WAYS)
def test_at_the_boundary_a_port_sends_as_long(way, k, link):
    """What a trace counts, at the size that the formula gives."""
    depth = 12 if k == 3 else 8  # as many layers on each stage
    step = step_at_boundary(way, STEPS[way], k, depth=depth, link=link)
    sending = port_seconds(step, shared=link == "pcie3")
    products = product_seconds(step)
    if way != "network":
        # The first layer's input needs no gradient: one product of 3L is not
        # there. A stage in the middle has all of them.
        products *= 3 * depth / (3 * depth - 1)
    assert sending == pytest.approx(products, rel=0.025)


@pytest.mark.parametrize(
    ("k", "times"),
    few_of(product([2, 4, 8], [1.5, 4]), [(2, 1.5), (4, 4)]),
)
def test_1f1b_waits_for_its_messages_at_every_width(k, times):
    """They cost (k - 1)/k · w0/w of the computing, and more at the ends."""
    width, threshold, told = told_cost(k, times)
    steady = (k - 1) / k * threshold / width
    ends = (k - 2) / (4 * k) * threshold / width
    assert told["1f1b"] == pytest.approx(steady + ends)
    for name in SCHEDULES:
        found = cost_of_messages(name, k, width, SLOW)
        assert 0.97 * (told[name] - LESS[name]) < found < 1.1 * told[name]


@pytest.mark.parametrize("k", [2, 4])
def test_narrow_stages_wait_longer_with_gpipe(k):
    """At w0, where a hop takes one and a half forward passes."""
    width, _, told = told_cost(k, 1)
    found = {n: cost_of_messages(n, k, width, SLOW) for n in SCHEDULES}
    assert 0.97 * (told["1f1b"] - LESS["1f1b"]) < found["1f1b"]
    assert found["1f1b"] < 1.1 * told["1f1b"]
    assert 1.5 * told["gpipe"] < found["gpipe"] < 2.2 * told["gpipe"]


SCHEDULES = ("gpipe", "1f1b")
SLOW = "ethernet100"
DEPTH = 8
# The first stage has one product less, and 1F1B waits so much less.
LESS = {"1f1b": 1 / (3 * DEPTH), "gpipe": 0}


def told_cost(k, times):
    """Return a width, w0, and what messages cost by the count of hops."""
    m = 4 * k
    balance = machine_balance(cluster(k, "v100", SLOW))
    threshold = 4 / 3 * k / DEPTH * balance
    width = k * round(times * threshold / k)
    hop = threshold / width / 2  # as a share of F + B
    told = {name: hops_waited(name, k, m) * hop / m for name in SCHEDULES}
    return width, threshold, told


def recorded():
    """Return what the chapter compares with estimates, and the estimates."""
    path = Path("book/_data/split_steps.json")
    points = json.loads(path.read_text())["rows"]
    for way, link, k, rows, width, seconds in points:
        machine = cluster(k, "v100", link)
        told = estimate(
            way, rows=rows, width=width, depth=8, cluster=machine
        ).seconds
        yield (way, link, k, rows, width), seconds, told


def test_wide_layers_are_estimated_within_a_sixth():
    """All points of the record, but the one that the chapter names."""
    wide = [each for each in recorded() if each[0][-1] >= 1000]
    assert len(wide) == 420
    beyond = [
        point
        for point, seconds, told in wide
        if abs(told / seconds - 1) > 0.15
    ]
    assert beyond == [("network", "nvlink2", 4, 512, 1024)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("link", "k", "rows", "width"),
    [weekly(("ethernet25", 4, 4096, 1024)), ("pcie3", 2, 4096, 2048)],
)
def test_the_record_is_what_is_simulated(way, link, k, rows, width):
    found = {point: seconds for point, seconds, _ in recorded()}
    seconds = simulated(way, link, rows, width, k).seconds
    assert found[way, link, k, rows, width] == pytest.approx(seconds, rel=1e-4)


def test_one_device_leaves_the_others_idle():
    sizes = {"rows": 4096, "width": 4096, "depth": 8}
    four, one = (cluster(k, "v100", "pcie3") for k in (4, 1))
    found = estimate(ONE_DEVICE, **sizes, cluster=four)
    assert found == estimate("data", **sizes, cluster=one)
    assert found.sending == 0


@pytest.mark.parametrize("way", ["Data", ""])
def test_ways_that_are_none(way):
    with pytest.raises(ValueError, match=f"way: '{way}'"):
        estimate(way, rows=1, width=1, depth=1, cluster=cluster(2))
    with pytest.raises(ValueError, match=f"way: '{way}'"):
        boundary(way, 2, depth=1, ratio=1.0)


def test_what_the_formulas_are_not_for():
    one = cluster(4, "v100", "nvlink2")
    with pytest.raises(ValueError, match=r"layers: 2, devices: 4"):
        estimate("network", rows=4096, width=64, depth=2, cluster=one)
    with pytest.raises(ValueError, match=r"rows: 3, at least: 4"):
        estimate("data", rows=3, width=64, depth=8, cluster=one)
    nodes = cluster(8, ranks_per_node=4)
    with pytest.raises(ValueError, match=r"one node .*ranks_per_node: 4"):
        estimate("layer", rows=64, width=64, depth=8, cluster=nodes)
