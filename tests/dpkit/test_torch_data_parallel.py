"""Tests of dpkit.sim.operators.refusals: what torch.nn.DataParallel does."""

import pytest
import torch
from torch import nn

from dpkit import sim

sim.register()
REFUSAL = (
    r"torch\.nn\.DataParallel copies by functions of CUDA \(device: sim:0\); "
    r"dpkit\.DataParallel\(module, devices\) does the same"
)


@pytest.mark.parametrize(
    "act",
    [
        lambda net: nn.DataParallel(net.to("sim:0")),
        lambda net: nn.DataParallel(net.to("sim:0"), device_ids=[0, 1]),
        lambda net: nn.DataParallel(net, device_ids=["sim:0", "sim:1"]),
        lambda net: nn.DataParallel(net, [torch.device("sim:0")]),
        lambda net: nn.DataParallel(net).to("sim:0")(torch.ones(3, 2)),
    ],
)
def test_simulated_devices_are_refused(act):
    with pytest.raises(NotImplementedError, match=REFUSAL):
        act(nn.Linear(2, 1))


def test_a_buffer_lies_on_a_device_too():
    net = nn.BatchNorm1d(2, affine=False).to("sim:0")
    with pytest.raises(NotImplementedError, match=REFUSAL):
        nn.DataParallel(net)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch uses a GPU here")
def test_a_module_on_the_cpu_runs_as_before():
    net = nn.Linear(2, 1)
    x = torch.ones(3, 2)
    assert torch.equal(nn.DataParallel(net)(x), net(x))
    assert torch.equal(nn.DataParallel(net, device_ids=[0, 1])(x), net(x))
