"""Clipping over devices is clipping on one, copies counted once."""

import pytest
import torch

import dpkit
from dpkit.clipping import clip_grad_norm


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


def test_a_group_of_which_some_are_given():
    """Of a copy elsewhere, the one that is given counts."""
    one, other = (with_gradient((3,), "cpu", 0) for _ in range(2))
    norm = one.grad.norm().item()
    found = clip_grad_norm([other], 1e9, copies=[(one, other)])
    assert found.item() == pytest.approx(norm)
    assert clip_grad_norm([], 1e9, copies=[(one, other)]).item() == 0.0


def test_one_parameter():
    p = with_gradient((3, 4), "cpu", 0)
    norm = p.grad.norm().item()
    assert clip_grad_norm(p, 0.5).item() == pytest.approx(norm)
    assert p.grad.norm().item() == pytest.approx(0.5, rel=1e-4)


def test_parameters_without_gradients():
    assert clip_grad_norm([torch.zeros(3)], 1.0).item() == 0.0


def test_a_parameter_where_a_group_belongs():
    p = with_gradient((3,), "cpu", 0)
    with pytest.raises(TypeError, match=r"belongs \(shape: \(3,\)\)"):
        clip_grad_norm([p], 1.0, copies=[p])


@pytest.mark.parametrize("max_norm", [-1.0, float("-inf"), float("nan")])
def test_what_is_no_norm(max_norm):
    """A negative one would turn the gradients round."""
    p = with_gradient((3,), "cpu", 0)
    before = p.grad.clone()
    with pytest.raises(ValueError, match=rf"\(max_norm: {max_norm}\)"):
        clip_grad_norm([p], max_norm)
    assert torch.equal(p.grad, before)


@pytest.mark.parametrize("max_norm", [None, "1.0", [1.0]])
def test_what_is_no_number(max_norm):
    p = with_gradient((3,), "cpu", 0)
    with pytest.raises(TypeError, match=r"\(max_norm: "):
        clip_grad_norm([p], max_norm)


@pytest.mark.parametrize("other", [torch.zeros(4), torch.zeros(3).half()])
def test_copies_of_one_parameter_are_alike(other):
    p = with_gradient((3,), "cpu", 0).float()
    with pytest.raises(ValueError, match=r"rank 0: \(3,\) .*rank 1: \("):
        clip_grad_norm([p], 1.0, copies=[(p, other)])
    assert clip_grad_norm([p], 1.0, copies=[()]).item() == 0.0
