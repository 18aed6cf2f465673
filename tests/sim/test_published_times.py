"""The simulated clock against times that were measured and published."""

import pytest
import torch
from torch import nn

import dpkit
from tests.networks import lenet, lenet_params

# The notebook Multi-GPU training, on what is taken for four V100s.
NOTEBOOK = {"accelerator": "v100-pcie", "link": "pcie3", "backing": "meta"}


def products(x):
    return [x.mm(x) for _ in range(50)]


def test_products_and_copies_of_the_notebook():
    """Each within 15 % of what it printed."""
    with dpkit.sim.machine(num_devices=4, **NOTEBOOK):
        devices = dpkit.devices(4, "sim")
        inputs = [torch.rand(4000, 4000, device=d) for d in devices]
        with dpkit.Timer(devices) as one:
            results = products(inputs[0])
        with dpkit.Timer(devices) as in_turn:
            for device, x in zip(devices, inputs):
                products(x)
                torch.sim.synchronize(device)
        with dpkit.Timer(devices) as at_once:
            for x in inputs:
                products(x)
        with dpkit.Timer(devices) as pageable:
            [y.to("cpu") for y in results]
        with dpkit.Timer(devices) as pinned:
            [y.to("cpu", non_blocking=True) for y in products(inputs[0])]
        assert one.seconds == pytest.approx(0.493, rel=0.15)
        assert in_turn.seconds == pytest.approx(2.000, rel=0.15)
        assert at_once.seconds == pytest.approx(0.497, rel=0.15)
        assert pageable.seconds == pytest.approx(2.445, rel=0.15)
        assert pinned.seconds == pytest.approx(0.737, rel=0.15)


def lenet_seconds(num_devices):
    """Return the simulated seconds of a step of 256 images."""
    devices = dpkit.devices(num_devices, "sim")
    params = dpkit.replicate(lenet_params(), devices)
    X, y = torch.ones(256, 1, 28, 28), torch.arange(256) % 10
    batch = X.pin_memory(), y.pin_memory()
    loss = nn.CrossEntropyLoss(reduction="none")
    for _ in range(2):
        with dpkit.Timer(devices) as timer:
            dpkit.train_batch(
                lenet, loss, *batch, params, devices, 0.1, "star"
            )
    return timer.seconds


@pytest.mark.parametrize("host", ["eager", "eager-modules"])
def test_lenet_is_slower_on_two_devices(host):
    """As published: an epoch of 2.3 s instead of 1.7, mostly of reading."""
    with dpkit.sim.machine(host=host, **NOTEBOOK):
        assert lenet_seconds(2) > 1.3 * lenet_seconds(1)
