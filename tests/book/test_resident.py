"""An epoch whose images lie on the device: what it computes and fetches."""

import pytest
import torch
from torch import nn

import dpkit
from dpbook.common.batches import Batches
from dpbook.common.datasets import Labelled
from dpbook.common.models import lenet, lenet_params
from dpbook.two_devices.runs import time_resident_epoch
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
