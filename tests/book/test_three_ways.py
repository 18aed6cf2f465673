"""The ways that the chapters compare leave the gradients of one device."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpbook.network_partitioning.runs import deep_network
from dpbook.splitting.three_ways import (
    data_parallelism,
    layer_partitioning,
    network_partitioning,
    split_pairs,
)
from dpkit.layer_partition import copies, full_tensors

ROWS, WIDTH, DEPTH = 23, 7, 4  # neither rows nor width is a multiple of k


def task():
    """A network and its batch, drawn at random, on the CPU."""
    torch.manual_seed(0)
    net = deep_network(WIDTH, DEPTH).double()
    return net, torch.randn(ROWS, WIDTH, dtype=torch.double)


def expected():
    """The gradients of plain PyTorch, none of them small."""
    net, X = task()
    F.mse_loss(net(X), X).backward()
    grads = [p.grad for p in net.parameters()]
    assert min(grad.abs().max() for grad in grads) > 1e-4
    return grads


def gradients(net):
    """The gradients of all layers, from wherever their parameters lie."""
    if groups := copies(net):
        for first, *others in groups:
            assert others
            for p in others:
                assert torch.equal(p.grad.cpu(), first.grad.cpu())
        return list(full_tensors(net, lambda p: p.grad).values())
    return [p.grad.cpu() for p in net.parameters()]


def places(net):
    return {p.device for p in net.parameters()}


def assert_parity(nets):
    for net in nets:
        pairs = zip(gradients(net), expected(), strict=True)
        assert max((g - e).abs().max() for g, e in pairs) < 1e-12


@pytest.mark.parametrize("k", [2, 3, 4])
def test_data_parallelism_is_one_device(get_devices, k):
    ranks = get_devices(k)
    split = data_parallelism(*task(), ranks)
    split.step()
    assert [places(net) for net in split.nets] == [{rank} for rank in ranks]
    assert len(split.nets) == k > 1
    assert_parity(split.nets)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("way", [layer_partitioning, network_partitioning])
def test_a_network_on_all_devices_is_one_device(get_devices, way, k):
    ranks = get_devices(k)
    split = way(*task(), ranks)
    split.step()
    assert len(split.nets) == 1
    assert len(ranks) == k > 1
    assert places(split.nets[0]) == set(ranks)
    assert_parity(split.nets)


def test_each_device_has_a_part_of_every_layer(get_devices):
    """The 7 features between the layers of a pair: 3, 2 and 2."""
    ranks = get_devices(3)
    net, _ = task()
    for pair in split_pairs(net, ranks)[::2]:
        first, _, second = pair
        shapes = [tuple(part.weight.shape) for part in first.parts]
        assert shapes == [(3, WIDTH), (2, WIDTH), (2, WIDTH)]
        shapes = [tuple(part.weight.shape) for part in second.parts]
        assert shapes == [(WIDTH, 3), (WIDTH, 2), (WIDTH, 2)]


def test_layers_that_make_no_pairs(get_devices):
    with pytest.raises(ValueError, match=r"in pairs \(dense layers: 3\)"):
        split_pairs(deep_network(WIDTH, depth=3), get_devices(2))


def test_the_network_that_was_given_stays_as_it_is(get_devices):
    """A way splits copies of its layers; its gradients are theirs."""
    net, X = task()
    before = nn.utils.parameters_to_vector(net.parameters()).clone()
    for way in (data_parallelism, layer_partitioning):
        way(net, X, get_devices(2)).step()
        after = nn.utils.parameters_to_vector(net.parameters())
        assert torch.equal(before, after)
        assert all(p.grad is None for p in net.parameters())
