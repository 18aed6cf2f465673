"""An epoch whose images lie on the device: what it computes and fetches."""

import pytest
import torch
from torch import nn

import dpkit
from dpbook.common.batches import Batches
from dpbook.common.datasets import Labelled
from dpbook.common.models import lenet, lenet_params
from dpbook.two_devices.runs import time_graphed_epoch, time_resident_epoch
from dpkit.traffic import Traffic


@pytest.fixture
def few():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(11, 1, 28, 28, generator=generator)
    return Labelled(images, torch.arange(11) % 10)


@pytest.mark.parametrize("k", [1, 2])
def test_an_epoch_is_a_step_for_each_batch(get_devices, few, k):
    devices = get_devices(k)
    loss = nn.CrossEntropyLoss(reduction="none")
    start = lenet_params(0.1)
    expected = dpkit.replicate(start, devices)
    for X, y in Batches(*few, batch_size=4, shuffle=True):
        dpkit.train_batch(lenet, loss, X, y, expected, devices, lr=0.3)
    found = dpkit.replicate(start, devices)
    time_resident_epoch(few, found, devices, lr=0.3, batch_size=4)
    for replica, other in zip(found, expected):
        for p, q, r in zip(replica, other, start):
            assert torch.equal(p, q)
            assert not torch.equal(p.cpu(), r)


@pytest.mark.parametrize(
    "kind", ["sim", pytest.param("cuda", marks=pytest.mark.cuda)]
)
def test_graphed_steps_are_the_same(few, kind):
    """A step with the first batch, two by the graph, one of three rows."""
    devices = dpkit.devices(1, kind=kind)
    expected, found = (
        dpkit.replicate(lenet_params(0.1), devices) for _ in range(2)
    )
    loss = nn.CrossEntropyLoss(reduction="none")
    torch.manual_seed(0)
    order = torch.randperm(11)
    for rows in (torch.arange(4), *order.split(4)):
        X, y = (part[rows] for part in few)
        dpkit.train_batch(lenet, loss, X, y, expected, devices, lr=0.3)
    torch.manual_seed(0)
    time_graphed_epoch(few, found[0], devices[0], lr=0.3, batch_size=4)
    for p, q in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
        assert kind == "cuda" or torch.equal(p, q)


def test_a_graph_removes_launches(few):
    """Of an H200, which is bound by the host: the device computes for less."""
    many = Labelled(*(part.repeat_interleave(300, dim=0) for part in few))
    seconds = []
    with dpkit.sim.machine(accelerator="h200", backing="meta"):
        devices = dpkit.devices(1, kind="sim")
        params = dpkit.replicate(lenet_params(0.1), devices)
        eager = time_resident_epoch(many, params, devices, batch_size=300)
        graphed = time_graphed_epoch(
            many, params[0], devices[0], batch_size=300
        )
        seconds = [eager.seconds, graphed.seconds]
        del params
    assert seconds[1] < 0.6 * seconds[0], seconds


def test_the_host_sends_images_once_and_one_order(few):
    devices = dpkit.devices(1, kind="sim")
    params = dpkit.replicate(lenet_params(0.1), devices)
    with Traffic() as traffic:
        time_resident_epoch(few, params, devices, batch_size=4)
    order = 8 * len(few.labels)
    expected = few.images.nbytes + few.labels.nbytes + order
    assert traffic.received[devices[0]] == expected


def test_the_time_is_that_of_the_epoch_alone(few):
    """Copying the images, which comes before it, takes a quarter of both."""
    many = Labelled(*(part.repeat_interleave(500, dim=0) for part in few))
    with dpkit.sim.machine(backing="meta"):
        devices = dpkit.devices(1, kind="sim")
        params = dpkit.replicate(lenet_params(0.1), devices)
        before = dpkit.sim.now()
        timer = time_resident_epoch(many, params, devices, batch_size=5500)
        assert timer.seconds < 0.8 * (dpkit.sim.now() - before)
