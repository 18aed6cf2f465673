"""Tests of dpkit.sim.kernels: the dtypes that torch.amp has on CUDA."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpkit import sim

sim.register()
BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64


def sim_randn(*shape, dtype=F32):
    return torch.randn(*shape, device="sim:1", dtype=dtype)


CASES = {
    "linear": (lambda x, h: F.linear(x, x), BF16),
    "matmul": (lambda x, h: x @ x.T, BF16),
    "conv2d": (lambda x, h: F.conv2d(x[None, None], x[None, None]), BF16),
    "attention": (
        lambda x, h: F.scaled_dot_product_attention(*[x[None, None]] * 3),
        BF16,
    ),
    "exp": (lambda x, h: h.exp(), F32),
    "softmax": (lambda x, h: h.softmax(-1), F32),
    "layer_norm": (lambda x, h: F.layer_norm(h, (4,)), F32),
    "sum": (lambda x, h: h.sum(), F32),
    "mse_loss": (lambda x, h: F.mse_loss(h, h), F32),
    "cat": (lambda x, h: torch.cat([x, h]), F32),
    "cat of one dtype": (lambda x, h: torch.cat([h, h]), BF16),
    "relu": (lambda x, h: h.relu(), BF16),
    "add": (lambda x, h: x + h, F32),
    "doubles": (lambda x, h: x.double() @ x.double().T, F64),
    "integers": (lambda x, h: x.long().sum(), torch.int64),
}


@pytest.mark.parametrize("name", CASES)
def test_dtype_of_the_result(name):
    operation, dtype = CASES[name]
    x, h = sim_randn(2, 4), sim_randn(2, 4, dtype=BF16)
    with torch.autocast("sim", dtype=BF16):
        result = operation(x, h)
    assert result.dtype == dtype
    assert str(result.device) == "sim:1"


def test_values_are_those_of_cast_inputs():
    x, w = sim_randn(2, 4), sim_randn(3, 4)
    with torch.autocast("sim", dtype=BF16):
        result = F.linear(x, w)
    assert torch.equal(result, F.linear(x.to(BF16), w.to(BF16)))


def test_outside_the_block_nothing_is_cast():
    x = sim_randn(2, 4)
    with torch.autocast("sim", dtype=BF16):
        with torch.autocast("sim", enabled=False):
            assert (x @ x.T).dtype == F32
        assert (x @ x.T).dtype == BF16
    assert (x @ x.T).dtype == F32


def test_training_step():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    net.to("sim:1")
    x, y = sim_randn(5, 4), torch.tensor([0, 1, 2, 0, 1], device="sim:1")
    with torch.autocast("sim", dtype=BF16):
        loss = F.cross_entropy(net(x), y)
    assert loss.dtype == F32
    loss.backward()
    for p in net.parameters():
        assert p.grad.dtype == F32
        assert p.grad.any()
