"""The simulated step of ResNet-18 against what was measured and published."""

import copy

import torch

import dpkit
from dpbook.common.resnet import resnet18
from dpbook.two_devices.runs import train_step
from tests.sim.test_published_times import NOTEBOOK


def resnet_seconds(num_devices, rows=256):
    """Return the simulated seconds of a step, ``rows`` on each device."""
    devices = dpkit.devices(num_devices, "sim")
    net = resnet18()
    nets = [copy.deepcopy(net).to(device) for device in devices]
    X = torch.empty(rows * num_devices, 1, 28, 28)
    y = torch.zeros(rows * num_devices, dtype=torch.int64)
    batch = X.pin_memory(), y.pin_memory()
    for _ in range(2):
        with dpkit.Timer(devices) as timer:
            train_step(nets, *batch, devices)
    return timer.seconds


def test_resnet_is_faster_on_two_devices():
    """256 images on each: images per second grow by 1.6 times or more."""
    with dpkit.sim.machine(**NOTEBOOK):
        speedup = 2 * resnet_seconds(1) / resnet_seconds(2)
    assert 1.6 <= speedup < 2
