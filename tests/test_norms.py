"""Clipping over devices is clipping on one, copies counted once."""

import pytest
import torch

import dpkit
from dpkit.norms import clip_grad_norm


def with_gradient(shape, device, seed):
    generator = torch.Generator().manual_seed(seed)
    p = torch.zeros(shape, dtype=torch.float64, device=device)
    p.grad = torch.randn(shape, generator=generator, dtype=p.dtype).to(device)
    return p


@pytest.mark.parametrize("k", range(1, 5))
@pytest.mark.parametrize("max_norm", [0.5, 1e9])
def test_as_on_one_device(k, max_norm):
    devices = dpkit.devices(k, "sim")
    shapes = [(3, 4), (5,), (2, 2, 2), (7,)]
    one = [with_gradient(s, "cpu", i) for i, s in enumerate(shapes)]
    many = [with_gradient(s, devices[i % k], i) for i, s in enumerate(shapes)]
    copies = [with_gradient(shapes[0], d, 0) for d in devices[1:]]
    expected = torch.nn.utils.clip_grad_norm_(one, max_norm)
    total = clip_grad_norm(
        [*many, *copies], max_norm, copies=[(many[0], *copies)]
    )
    assert abs(total.item() - expected.item()) < 1e-12
    pairs = [*zip(one, many), *((one[0], c) for c in copies)]
    for p, q in pairs:
        assert (p.grad - q.grad.cpu()).abs().max() < 1e-12


def test_parameters_without_gradients():
    assert clip_grad_norm([torch.zeros(3)], 1.0).item() == 0.0
