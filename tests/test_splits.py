"""The formulas of the three ways, beside what simulated devices do."""

import pytest

from dpkit.lab.splitting.three_ways import (
    cost,
    data_parallelism,
    layer_partitioning,
    network_partitioning,
    traced,
)
from dpkit.theory.hardware.clusters import cluster
from dpkit.theory.hardware.costs import achieved_flops_per_second
from dpkit.theory.splits import WAYS, boundary, estimate

STEPS = {
    "data": data_parallelism,
    "network": network_partitioning,
    "layer": layer_partitioning,
}


@pytest.mark.parametrize("k", [4])
@pytest.mark.parametrize("way", WAYS)
def test_the_estimate_is_what_is_simulated(way, k):
    """Within a fifth, where products are large."""
    rows, width, depth = 8192, 4096, 8
    hardware = {"accelerator": "v100", "link": "nvlink2"}
    step = traced(STEPS[way], k, rows, width, depth, "star", **hardware)
    found = cost(step)
    told = estimate(way, rows, width, depth, cluster(k, **hardware))
    # Biases of layers split by their inputs are on every device.
    assert told.parameter_bytes == pytest.approx(
        found.parameter_bytes, rel=1e-3
    )
    assert 0.8 < told.computing / found.computing < 1.1
    assert 0.8 < told.sending / found.copying < 1.25
    assert 0.75 < told.activation_bytes / found.activation_bytes < 1.25
    assert 0.85 < told.seconds / found.seconds < 1.1


@pytest.mark.parametrize("k", [3, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_at_the_boundary_both_take_as_long(way, k):
    machine = cluster(k, "v100", "pcie3")
    rate = machine.link.bytes_per_second * machine.link.achieved
    ratio = achieved_flops_per_second(machine.accelerator, "float32") / rate
    size = boundary(way, k, depth=8, ratio=ratio)
    # So many rows and so wide that latencies and biases are small.
    rows, width = (round(k * size), 10**6)
    if way != "data":
        rows, width = 10**7, round(size)
    found = estimate(way, rows, width, 8, machine)
    assert found.computing == pytest.approx(found.sending, rel=0.01)


@pytest.mark.parametrize("way", ["Data", ""])
def test_ways_that_are_none(way):
    with pytest.raises(ValueError, match=f"way: '{way}'"):
        estimate(way, 1, 1, 1, cluster(2))
    with pytest.raises(ValueError, match=f"way: '{way}'"):
        boundary(way, 2, 1, 1.0)


@pytest.mark.parametrize("k", [4])
def test_a_pipeline_over_a_path_that_all_share(k):
    hardware = {"accelerator": "v100", "link": "pcie3"}
    found = cost(traced(network_partitioning, k, 32768, 4096, 8, **hardware))
    told = estimate("network", 32768, 4096, 8, cluster(k, **hardware))
    assert 0.8 < told.seconds / found.seconds < 1.1
