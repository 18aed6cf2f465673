"""Tests of dpbook.layer_partitioning.alexnet."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpbook.layer_partitioning.alexnet import (
    LAYERS,
    TALK_2012,
    WIDTHS_2012,
    TowerNorm,
    alexnet,
    split_towers,
)
from dpkit import layer_partition as lp
from dpkit.traffic import Traffic

TALKS = {
    "2012": TALK_2012,
    "always": LAYERS,
    "dense": ("dense6", "dense7", "dense8"),
    "last": ("dense8",),
    "never": (),
}


@pytest.mark.parametrize(
    ("num_towers", "talk"),
    [(1, "2012"), (2, "2012"), (2, "always"), (2, "never"), (4, "dense")],
)
def test_towers_train_as_one_device(get_devices, num_towers, talk):
    """Scores, and after two steps of SGD all parameters."""
    devices = get_devices(num_towers)
    plain = alexnet(num_towers, TALKS[talk]).double()
    net = split_towers(plain, devices)
    optimizers = [
        torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for module in (plain, net)
    ]
    torch.manual_seed(num_towers)
    for _ in range(2):
        X = torch.randn(5, 1, 28, 28, dtype=torch.double)
        y = torch.randint(10, (5,))
        for optimizer in optimizers:
            optimizer.zero_grad()
        scores = plain(X)
        F.cross_entropy(scores, y).backward()
        found = net([X.to(d) for d in devices])
        losses = [
            F.cross_entropy(s, y.to(d))
            for s, d in zip(found, devices, strict=True)
        ]
        torch.autograd.backward(losses)
        for s, device in zip(found, devices, strict=True):
            assert s.device == device
            torch.testing.assert_close(
                s.detach().cpu(), scores.detach(), rtol=0, atol=1e-10
            )
        for optimizer in optimizers:
            optimizer.step()
    full = lp.full_tensors(net)
    expected = dict(plain.named_parameters())
    assert full.keys() == expected.keys()
    for name, tensor in full.items():
        torch.testing.assert_close(
            tensor, expected[name].detach(), rtol=0, atol=1e-10
        )


def test_it_is_the_network_of_2012():
    """At full width: the shapes that section 3.5 of the paper gives."""
    net = alexnet(scale=1.0)
    shapes = [tuple(net.get_submodule(n).weight.shape[:2]) for n in LAYERS]
    inputs = (1, 48, 256, 192, 192, 256, 4096, 4096)
    assert shapes == list(zip((*WIDTHS_2012, 10), inputs, strict=True))
    names = [n for n, _ in net.named_children()]
    assert names[:5] == ["conv1", "relu1", "norm1", "pool1", "conv2"]
    assert [n for n in names if n[:4] in ("norm", "pool")] == [
        "norm1", "pool1", "norm2", "pool2", "pool5",
    ]  # fmt: skip


@pytest.mark.parametrize("num_towers", [1, 2, 3])
def test_response_normalization(num_towers):
    """By the formula of the paper, over the channels of each tower."""
    torch.manual_seed(num_towers)
    x = torch.randn(2, 12, 3, 5)
    y = TowerNorm(num_towers)(x)
    size = 12 // num_towers
    for i in range(12):
        start = i // size * size
        near = range(max(start, i - 2), min(start + size, i + 3))
        squares = sum(x[:, j] ** 2 for j in near)
        expected = x[:, i] / (2 + 1e-4 * squares) ** 0.75
        torch.testing.assert_close(y[:, i], expected)


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS.keys())
def test_what_the_talk_costs(talk):
    """All that goes in where towers talk is sent once; backward as much."""
    devices = dpkit.devices(2, kind="sim")
    inputs = {
        "conv2": 12 * 13 * 13, "conv3": 32 * 6 * 6, "conv4": 48 * 6 * 6,
        "conv5": 48 * 6 * 6, "dense6": 32 * 2 * 2, "dense7": 512,
        "dense8": 512,
    }  # fmt: skip
    net = split_towers(alexnet(talk=talk), devices)
    Xs = [torch.zeros(3, 1, 28, 28, device=d) for d in devices]
    gathered = sum(inputs[name] for name in talk if name != "conv1")
    with Traffic() as traffic:
        scores = net(Xs)
    num_bytes = 4 * 3 * (gathered + 10)
    assert traffic.sent.total() == traffic.received.total() == num_bytes
    with Traffic() as traffic:
        torch.autograd.backward([s.sum() for s in scores])
    assert traffic.sent.total() == 4 * 3 * gathered


def test_it_has_the_same_weights_each_time():
    states = [alexnet().state_dict() for _ in range(2)]
    assert all(map(torch.equal, *(state.values() for state in states)))


def test_it_draws_from_its_own_generator():
    before = torch.get_rng_state()
    net = alexnet()
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(net.conv1, nn.Conv2d)


def test_what_cannot_be():
    with pytest.raises(ValueError, match=r"talk: conv9; known: conv1, conv2"):
        alexnet(talk=("conv3", "conv9"))
