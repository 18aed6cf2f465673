"""Tests of dpbook.common.models."""

import pytest
import torch
from torch import nn

from dpbook.common.models import LeNet, lenet, lenet_params


def as_modules(params):
    """The same network from torch's layers."""
    layers = [nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)]
    layers += [nn.Linear(800, 128), nn.Linear(128, 10)]
    with torch.no_grad():
        for layer, weight, bias in zip(layers, params[::2], params[1::2]):
            layer.weight.copy_(weight.T if weight.dim() == 2 else weight)
            layer.bias.copy_(bias)
    pool = nn.AvgPool2d(2)
    a, b, c, d = layers
    return nn.Sequential(
        a, nn.ReLU(), pool, b, nn.ReLU(), pool, nn.Flatten(), c, nn.ReLU(), d
    )


def test_lenet_is_what_torchs_layers_compute():
    params = lenet_params()
    params[1::2] = [torch.randn_like(b) for b in params[1::2]]
    X = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(lenet(X, params), as_modules(params)(X))


def test_lenet_with_another_activation():
    params, X = lenet_params(), torch.randn(3, 1, 28, 28)
    net = as_modules(params)
    for i in (1, 4, 8):
        net[i] = nn.Tanh()
    torch.testing.assert_close(lenet(X, params, torch.tanh), net(X))


def test_the_module_is_the_function_of_its_parameters():
    net, X = LeNet(seed=3), torch.randn(2, 1, 28, 28)
    params = lenet_params(seed=3)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), params))
    assert torch.equal(net(X), lenet(X, params))


@pytest.mark.parametrize(
    ("scale", "stds"),
    [
        (0.01, [0.01] * 4),
        (None, [(2 / n) ** 0.5 for n in (9, 500, 800, 128)]),
    ],
)
def test_scale_of_the_weights(scale, stds):
    draws = [lenet_params(scale, seed) for seed in range(100)]
    for layer, std in enumerate(stds):
        weights = torch.stack([params[2 * layer] for params in draws])
        assert abs(weights.std() / std - 1) < 0.02  # 18,000 at the least
        assert not any(params[2 * layer + 1].any() for params in draws)


def test_seed_decides():
    first, again, other = (lenet_params(seed=s) for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], other[0])
