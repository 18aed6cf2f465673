"""The loop that does not know how many devices there are."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpbook.common.batches import Batches
from dpbook.common.loop import take_step, train_epoch


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def wrapped(devices):
    net = dpkit.DataParallel(small_net().to(devices[0]), devices)
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


@pytest.fixture
def batches():
    torch.manual_seed(1)
    X, y = torch.rand(11, 5).double(), torch.randint(3, (11,))
    return Batches(X, y, batch_size=4)  # the last has three


@pytest.mark.parametrize("k", [1, 2, 3])
def test_epochs_are_those_of_plain_pytorch(get_devices, batches, k):
    expected, losses = small_net(), []
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for X, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(expected(X), y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()) * len(y) / 11)
    net, optimizer = wrapped(get_devices(k))
    first = train_epoch(net, optimizer, batches)
    second = train_epoch(net, optimizer, batches)
    assert first == pytest.approx(sum(losses[:3]), abs=1e-12)
    assert second == pytest.approx(sum(losses[3:]), abs=1e-12)
    for p, q in zip(net.parameters(), expected.parameters()):
        assert (p.cpu() - q).abs().max() < 1e-12


def test_a_step_returns_the_loss_before_it(get_devices, batches):
    net, optimizer = wrapped(get_devices(2))
    X, y = next(iter(batches))
    expected = F.cross_entropy(small_net()(X), y).detach()
    found = take_step(net, optimizer, X, y)
    assert not found.requires_grad
    assert float(found) == pytest.approx(float(expected), abs=1e-12)
