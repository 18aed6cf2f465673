"""The batch norms of many replicas in one module are those of replicas."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpbook.batch_norm.runs import (
    PerDeviceBatchNorm,
    accuracy,
    small_net,
    trained,
)
from dpbook.common.datasets import Labelled
from dpkit.data_parallel import BucketedDataParallel


def ordinary(net):
    """Return the same network with PyTorch's batch norms."""
    layers = []
    for layer in copy.deepcopy(net):
        if isinstance(layer, PerDeviceBatchNorm):
            kind = nn.BatchNorm1d if len(layers) == 8 else nn.BatchNorm2d
            norm = kind(len(layer.weight)).double()
            norm.weight, norm.bias = layer.weight, layer.bias
            layer = norm
        layers.append(layer)
    return nn.Sequential(*layers)


def norms(net, kind):
    return [module for module in net if isinstance(module, kind)]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_one_module_or_k_replicas(k):
    """Gradients, and the statistics of every replica, after each step."""
    torch.manual_seed(0)
    net = small_net(k).double()
    real = BucketedDataParallel(ordinary(net), dpkit.devices(k, "cpu"))
    assert len(real.replicas) == k
    for step in range(3):
        X, y = torch.rand(8, 1, 28, 28).double() + step, torch.arange(8)
        net.zero_grad()
        F.cross_entropy(net(X), y).backward()
        for replica in real.replicas:
            replica.zero_grad()
        real.forward_backward(X, y, nn.CrossEntropyLoss())
        for replica in real.replicas:
            for p, q in zip(net.parameters(), replica.parameters()):
                torch.testing.assert_close(p.grad, q.grad)
        for rank, replica in enumerate(real.replicas):
            theirs = norms(replica, nn.modules.batchnorm._BatchNorm)
            ours = norms(net, PerDeviceBatchNorm)
            assert len(ours) == len(theirs) == 3
            for mine, other in zip(ours, theirs):
                torch.testing.assert_close(
                    mine.running_mean[rank], other.running_mean
                )
                torch.testing.assert_close(
                    mine.running_var[rank], other.running_var
                )


@pytest.mark.parametrize("rank", [0, 1])
def test_evaluation_takes_one_replica(rank):
    torch.manual_seed(0)
    norm = PerDeviceBatchNorm(3, 2)
    norm(torch.randn(8, 3, 5) * 4 + 2)
    norm.rank = rank
    x = torch.randn(4, 3, 5)
    alike = nn.BatchNorm1d(3).eval()
    alike.running_mean, alike.running_var = (
        norm.running_mean[rank],
        norm.running_var[rank],
    )
    torch.testing.assert_close(norm.eval()(x), alike(x))


def test_the_dense_layer_without_its_norm():
    torch.manual_seed(0)
    norms_of = [
        len(norms(small_net(2, dense_norm), PerDeviceBatchNorm))
        for dense_norm in (True, False)
    ]
    assert norms_of == [3, 2]
    assert small_net(2, dense_norm=False)(torch.rand(4, 1, 28, 28)).shape == (
        4,
        10,
    )


def labelled(num_examples):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(num_examples, 1, 28, 28, generator=generator)
    return Labelled(images, torch.arange(num_examples) % 10)


def test_the_same_seed_trains_the_same():
    first, again, other = (
        list(trained(labelled(150), 2, seed).parameters())
        for seed in (0, 0, 1)
    )
    assert all(torch.equal(p, q) for p, q in zip(first, again))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize(("num_examples", "same"), [(62, True), (64, False)])
def test_what_is_left_of_the_last_step_is_not_used(num_examples, same):
    torch.manual_seed(0)
    start = small_net(2)[0].weight
    found = trained(labelled(num_examples), 2, 0)[0].weight
    assert torch.equal(found, start) == same


def test_rows_by_class_part_the_statistics():
    """Device 0 then sees dark images alone, device 1 bright ones."""
    images, labels = labelled(640)
    images = images * (labels >= 5)[:, None, None, None]
    mixed, apart = (
        trained(Labelled(images, labels), 2, 0, by_class)[1].running_mean
        for by_class in (False, True)
    )
    away = [float((m[0] - m[1]).abs().max()) for m in (mixed, apart)]
    assert away[1] > 3 * away[0]


def test_accuracy_counts_and_leaves_the_mode():
    net = small_net(2)
    with torch.no_grad():
        net[-1].weight.zero_()
        net[-1].bias.zero_()[3] = 1.0  # always class 3
    images, labels = labelled(25)
    assert accuracy(net, Labelled(images, labels), rank=1) == 3 / 25
    assert net.training
    assert net[1].rank == 1
