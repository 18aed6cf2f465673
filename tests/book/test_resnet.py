"""Tests of dpbook.common.resnet."""

import pytest
import torch
import torchvision
from torch import nn

from dpbook.common.resnet import resnet18


def shapes(net):
    return {name: tuple(t.shape) for name, t in net.state_dict().items()}


def test_the_usual_width_is_torchvisions_network():
    """And draws from the generator what it always drew."""
    torch.manual_seed(0)
    expected = torchvision.models.resnet18(num_classes=10)
    expected.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)
    torch.manual_seed(0)
    found = resnet18().state_dict()
    assert list(found) == list(expected.state_dict())
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("width", [1, 8, 96])
def test_all_channels_are_in_proportion(width):
    scaled = {
        name: tuple(n if n < 64 else n * width // 64 for n in shape)
        for name, shape in shapes(resnet18()).items()
    }
    assert shapes(resnet18(width=width)) == scaled


def test_another_width_starts_alike():
    """Weights are drawn with the spread that torchvision gives them."""
    torch.manual_seed(0)
    usual, other = resnet18(), resnet18(width=32)
    for name, p in usual.named_parameters():
        if "layer" in name and p.dim() == 4:
            spread = float(other.get_parameter(name).detach().std())
            assert spread == pytest.approx(
                float(p.detach().std()) * 2**0.5, 0.1
            )


@pytest.mark.parametrize("size", [8, 28])
def test_scores(size):
    net = resnet18(width=4)
    assert net(torch.zeros(2, 1, size, size)).shape == (2, 10)
