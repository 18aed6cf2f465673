"""Tests of dpkit.sim.tensors.behaviour: copies of simulated tensors."""

import copy

import pytest
import torch
from torch import nn

from dpkit import sim

sim.register()


def test_deepcopy_of_a_gradient_that_crossed_devices():
    w = torch.ones(2, device="sim:1", requires_grad=True)
    (gradient,) = torch.autograd.grad((2 * w.to("sim:0")).sum(), w)
    again = copy.deepcopy(gradient)
    assert again.tolist() == [2, 2]
    assert again.device == gradient.device
    assert again.data_ptr() != gradient.data_ptr()


def leaf(device):
    x = torch.ones(3, device=device, requires_grad=True)
    x.note = ["kept"]
    x.sum().backward()
    return x


COPIED = {
    "a leaf": leaf,
    "a plain tensor": lambda d: torch.ones(3, device=d),
    "a view": lambda d: torch.ones(4, device=d)[1:],
    "a result": lambda d: leaf(d) * 1,
    "a parameter": lambda d: nn.Parameter(torch.ones(3, device=d)),
    "a frozen parameter": lambda d: nn.Parameter(
        torch.ones(3, device=d), False
    ),
}


@pytest.mark.parametrize("name", COPIED)
def test_copy_is_in_the_same_memory(name):
    """As on the CPU."""
    found = []
    for device in ("cpu", "sim:1"):
        x = COPIED[name](device)
        y = copy.copy(x)
        assert y is not x
        assert y.device == x.device
        assert isinstance(y, nn.Parameter) == isinstance(x, nn.Parameter)
        with torch.no_grad():
            y += 1
        assert torch.equal(x, y)
        assert y.data_ptr() == x.data_ptr()
        attributes = (y.requires_grad, y.is_leaf, y.grad, y.stride())
        found.append((*attributes, getattr(y, "note", None)))
    assert found[1] == found[0]


def test_parameters_in_containers():
    """They are SimTensors with a mark, which isinstance() knows."""
    w = nn.Parameter(torch.ones(2, device="sim:1"))
    for made in (
        nn.ParameterList([w])[0],
        nn.ParameterDict({"w": w})["w"],
        copy.copy(w),
        copy.deepcopy(w),
        w,
    ):
        assert isinstance(made, nn.Parameter)
        assert str(made.device) == "sim:1"
    net = nn.Module()
    net.w = w
    assert list(net.parameters()) == [w]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "wrap",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
    ],
)
@pytest.mark.parametrize("moved_first", [True, False])
def test_parameters_that_are_computed(wrap, moved_first):
    results = []
    for device in ("cpu", "sim:1"):
        torch.manual_seed(0)
        layer = nn.Linear(3, 3)
        if moved_first:
            layer = wrap(layer.to(device))
        else:
            layer = wrap(layer)
            layer(torch.ones(1, 3))
            layer = layer.to(device)
        torch.manual_seed(1)
        out = layer(torch.randn(2, 3).to(device))
        out.square().sum().backward()
        results.append([out, *(p.grad for p in layer.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-5, atol=1e-6)
