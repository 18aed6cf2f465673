"""A dense layer in closed form, and on a device whose host takes no time."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import dpkit
from dpbook.formulas.dense import Dense
from dpkit.plans import FREE_HOST
from dpkit.sim.hardware.clusters import cluster

PICOSECOND = 1e-12  # the clock rounds each operation to one


def on_device(accelerator, rows, inputs, outputs):
    """Return the seconds of forward and of backward, without values."""
    machine = {"accelerator": accelerator, "host": FREE_HOST}
    with dpkit.sim.machine(num_devices=1, backing="meta", **machine):
        (device,) = dpkit.devices(1, "sim")
        layer = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()).to(device)
        for p in layer.parameters():
            p.grad = torch.zeros_like(p)
        x = torch.zeros(rows, inputs, device=device, requires_grad=True)
        with dpkit.Timer([device]) as forward:
            y = layer(x)
        dy = torch.zeros_like(y)
        with dpkit.Timer([device]) as backward:
            y.backward(dy)
    return forward.seconds, backward.seconds


@pytest.mark.parametrize("accelerator", ["v100", "h100"])
@pytest.mark.parametrize(
    ("b", "n", "m"), [(4096, 2048, 1024), (1024, 4096, 4096), (8192, 512, 768)]
)
def test_a_layer_takes_as_long_on_the_clock(b, n, m, accelerator):
    one = replace(cluster(1, accelerator), host=FREE_HOST)
    layer = Dense(one, rows=b, inputs=n, outputs=m)
    forward, backward = on_device(accelerator, b, n, m)
    assert layer.forward == pytest.approx(forward, rel=0, abs=2 * PICOSECOND)
    # The gradients of the bias are added by an operation of their own, which
    # the formula leaves out, as it does the writing of their sum.
    moved = layer.moved
    bias = moved(3 * m) + moved(3 * n * m) - moved(3 * (n + 1) * m)
    summed = moved(b * m + m) - moved(b * m)
    told = layer.backward + bias + summed
    assert told == pytest.approx(backward, rel=0, abs=6 * PICOSECOND)
    assert bias + summed < 0.01 * backward
