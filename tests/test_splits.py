"""The formulas of the three ways, beside what simulated devices do."""

import pytest

from dpkit.lab.splitting.three_ways import (
    cost,
    data_parallelism,
    layer_partitioning,
    network_partitioning,
    traced,
)
from dpkit.theory.explore.way_map import winner
from dpkit.theory.hardware.clusters import cluster
from dpkit.theory.hardware.costs import achieved_flops_per_second
from dpkit.theory.splits import WAYS, boundary, estimate

STEPS = {
    "data": data_parallelism,
    "network": network_partitioning,
    "layer": layer_partitioning,
}


def simulated(way, link, rows, width, k=4):
    """The real program on devices with room for every network."""
    room = {"memory_bytes": 10**15, "link": link}
    return cost(traced(STEPS[way], k, rows, width, 8, **room))


# Points of the map of the chapter, far enough from its borders.
@pytest.mark.parametrize(
    ("link", "rows", "width", "best"),
    [
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
    ],
)
def test_the_map_names_the_way_that_wins(link, rows, width, best):
    """Each time within 15 %, and the same winner by both."""
    machine = cluster(4, "v100", link)
    found = {way: simulated(way, link, rows, width).seconds for way in WAYS}
    for way in WAYS:
        told = estimate(way, rows, width, 8, machine).seconds
        assert told == pytest.approx(found[way], rel=0.15), way
    found["one device"] = simulated("data", link, rows, width, 1).seconds
    assert min(found, key=found.get) == best
    assert winner(rows, width, 8, machine) == best


@pytest.mark.parametrize("way", WAYS)
def test_the_parts_of_an_estimate(way):
    """Within a fifth, where products are large; parameters nearly exact."""
    found = simulated(way, "nvlink2", 8192, 4096)
    told = estimate(way, 8192, 4096, 8, cluster(4, "v100", "nvlink2"))
    # Biases of layers split by their inputs are on every device.
    assert told.parameter_bytes == pytest.approx(
        found.parameter_bytes, rel=1e-3
    )
    assert 0.9 < told.computing / found.computing < 1.2
    assert 0.9 < told.sending / found.copying < 1.1
    assert 0.75 < told.activation_bytes / found.activation_bytes < 1.25


@pytest.mark.parametrize("link", ["nvlink2", "pcie3"])
@pytest.mark.parametrize("k", [3, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_at_the_boundary_both_take_as_long(way, k, link):
    """On ports of their own, and on one path through the host."""
    machine = cluster(k, "v100", link)
    rate = machine.link.bytes_per_second * machine.link.achieved
    ratio = achieved_flops_per_second(machine.accelerator, "float32") / rate
    shared = not machine.link.peer_to_peer
    # So many rows and so wide that latencies and biases are small; and so
    # deep that there is a width at which a pipeline sends as long.
    width, depth = 10**6, 8
    size = boundary(way, k, depth, ratio, shared)
    rows = round(k * size)
    if way != "data":
        rows, width = 10**9, round(size)
    found = estimate(way, rows, width, depth, machine)
    products = (
        6
        * rows
        * width**2
        * depth
        / k
        / achieved_flops_per_second(machine.accelerator, "float32")
    )
    assert products == pytest.approx(found.sending, rel=0.02)


@pytest.mark.parametrize("way", ["Data", ""])
def test_ways_that_are_none(way):
    with pytest.raises(ValueError, match=f"way: '{way}'"):
        estimate(way, 1, 1, 1, cluster(2))
    with pytest.raises(ValueError, match=f"way: '{way}'"):
        boundary(way, 2, 1, 1.0)


def test_what_the_formulas_are_not_for():
    one = cluster(4, "v100", "nvlink2")
    with pytest.raises(ValueError, match=r"layers: 2, devices: 4"):
        estimate("network", 4096, 64, depth=2, cluster=one)
    with pytest.raises(ValueError, match=r"rows: 3, at least: 4"):
        estimate("data", 3, 64, depth=8, cluster=one)
    nodes = cluster(8, ranks_per_node=4)
    with pytest.raises(ValueError, match=r"one node .*ranks_per_node: 4"):
        estimate("layer", 64, 64, depth=8, cluster=nodes)
