"""Steps that are computed from counts, beside steps that are simulated."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from recorders import counts

import dpkit
from dpbook.common.models import lenet, lenet_params
from dpbook.common.resnet import resnet18
from dpbook.formulas.gradient_sums import SUMS, gradient_sum
from dpbook.formulas.networks import COUNTED, network, phase
from dpbook.formulas.parallel_step import buckets_of, parallel_step
from dpbook.two_devices.scaling import processes_step
from dpkit.buckets import assign
from dpkit.collectives import ALGORITHMS
from dpkit.plans import FREE_HOST
from dpkit.sim.hardware.clusters import cluster

PICOSECOND = 1e-12
MACHINES = [("v100-pcie", "pcie3"), ("h100", "nvlink4")]


def by_hand(k, algorithm, **machine):
    """Simulate the step of LeNet that the chapter builds by hand."""
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    with dpkit.sim.machine(backing="meta", **machine):
        devices = dpkit.devices(k, kind="sim")
        params = dpkit.replicate(lenet_params(), devices)
        X = torch.zeros(256, 1, 28, 28).pin_memory()
        y = torch.zeros(256, dtype=torch.long).pin_memory()
        dpkit.synchronize(devices)
        with dpkit.sim.trace() as timeline:
            dpkit.train_batch(
                lenet, loss, X, y, params, devices, 0.1, algorithm
            )
            dpkit.synchronize(devices)
    return timeline


@pytest.mark.parametrize("name", COUNTED)
def test_the_counts_are_those_of_a_step_today(name):
    found = counts.count(counts.NETWORKS[name])
    for part in counts.PARTS:
        told = [list(o) for o in getattr(network(name), part)]
        assert found[part] == told
    assert found["gradients"] == [list(g) for g in network(name).gradients]


@pytest.mark.parametrize(("accelerator", "link"), MACHINES)
@pytest.mark.parametrize("hosts", ["one", "per_device"])
@pytest.mark.parametrize("algorithm", SUMS)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_step_by_hand(k, algorithm, hosts, accelerator, link):
    machine = {"accelerator": accelerator, "link": link, "hosts": hosts}
    told = parallel_step(
        network("LeNet"), 256, cluster(k, **machine), algorithm=algorithm
    )
    found = by_hand(k, algorithm, **machine)
    assert told.seconds == pytest.approx(found.makespan, rel=0.06)


# Of more than two devices a formula for a star, and for a ring on one path,
# leaves out how its messages overlap.
@pytest.mark.parametrize(
    ("k", "algorithm", "accelerator", "link"),
    [
        *product([1, 2], SUMS, ["h100"], ["nvlink4"]),
        *product([1, 2], SUMS, ["v100-pcie"], ["pcie3"]),
        (4, "library", "v100-pcie", "pcie3"),
        (4, "library", "h100", "nvlink4"),
        (4, "ring", "h100", "nvlink4"),
    ],
)
@pytest.mark.parametrize("hosts", ["one", "per_device"])
def test_without_launches_it_is_exact(k, algorithm, hosts, accelerator, link):
    """Up to the picosecond to which the clock rounds each operation."""
    machine = {"accelerator": accelerator, "link": link, "hosts": hosts}
    found = by_hand(k, algorithm, host=FREE_HOST, **machine).makespan
    devices = replace(cluster(k, **machine), host=FREE_HOST)
    told = parallel_step(network("LeNet"), 256, devices, algorithm=algorithm)
    rounded = told.launches * PICOSECOND
    assert told.seconds == pytest.approx(found, rel=0, abs=rounded)


@pytest.mark.parametrize("hosts", ["one", "per_device"])
@pytest.mark.parametrize("algorithm", SUMS)
def test_launches_are_counted(algorithm, hosts):
    machine = {"accelerator": "h100", "link": "nvlink4", "hosts": hosts}
    told = parallel_step(
        network("LeNet"), 256, cluster(3, **machine), algorithm=algorithm
    )
    first = "host" if hosts == "one" else "host:0"
    launches = [
        span
        for span in by_hand(3, algorithm, **machine).spans
        if span.device == first and span.kind == "launch"
    ]
    # A launch in backward is 5 µs, of the backward of a convolution two or
    # three in one span; a view takes 1.5.
    times = [round(1e6 * (s.end - s.start), 1) for s in launches]
    found = sum(
        round(t / (5 if "backward" in s.stream else 8))
        for t, s in zip(times, launches)
        if t > 2
    )
    assert told.launches == found


@pytest.mark.parametrize(("accelerator", "link"), MACHINES)
@pytest.mark.parametrize("algorithm", SUMS)
def test_a_step_in_buckets(algorithm, accelerator, link):
    machine = {"accelerator": accelerator, "link": link}
    found = processes_step(4, 1024, resnet18, algorithm=algorithm, **machine)
    four = cluster(4, **machine, hosts="per_device")
    told = parallel_step(
        network("ResNet-18"), 1024, four, algorithm=algorithm, in_buckets=True
    )
    assert told.seconds == pytest.approx(found.seconds, rel=0.06)


@pytest.mark.parametrize("name", COUNTED)
def test_buckets_are_those_of_the_engine(name):
    gradients = network(name).gradients
    tensors = [torch.empty(n, dtype=torch.int8) for n, _ in gradients]
    groups = assign(tensors, 25 * 2**20, 2**20)
    found = buckets_of(gradients)
    sizes = [sum(gradients[i][0] for i in group) for group in groups]
    assert [num_bytes for num_bytes, _ in found] == sizes
    assert [at for _, at in found] == [gradients[max(g)][1] for g in groups]


def test_two_devices_are_slower_where_python_launches_for_both():
    seconds = [
        parallel_step(
            network("LeNet"), 256, cluster(k, "v100-pcie", "pcie3")
        ).seconds
        for k in (1, 2, 4)
    ]
    assert seconds[0] < seconds[1] < seconds[2]


def test_what_is_done_in_a_stretch_fits_in_it():
    two = cluster(2, "v100-pcie", "pcie3")
    for stretch in parallel_step(network("LeNet"), 256, two).stretches:
        assert 0 <= stretch.busy <= stretch.end - stretch.start + 1e-12


def test_an_operation_waits_for_its_launch_and_for_the_one_before():
    forward = network("LeNet").forward
    slow, fast = (phase(forward, rows, cluster(1)) for rows in (100_000, 1))
    assert slow.alone == pytest.approx(slow.computing, rel=1e-3)
    assert fast.alone == pytest.approx(fast.launching, rel=0.05)
    assert fast.end(issued=1, free=0) == 1 + fast.alone
    assert slow.end(issued=0, free=1) == 1 + slow.computing


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="nothing to do"):
        parallel_step(network("LeNet"), 1, cluster(2))
    with pytest.raises(ValueError, match="one host for each"):
        parallel_step(network("LeNet"), 8, cluster(2), in_buckets=True)
    with pytest.raises(ValueError, match="unknown algorithm"):
        gradient_sum("tree", 8, cluster(2))


def test_sums_of_gradients_are_algorithms_of_the_library():
    assert {*SUMS} <= {*ALGORITHMS}
