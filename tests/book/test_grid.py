"""A grid of devices leaves the gradients of one device on all of them."""

import pytest
import torch
from torch.nn import functional as F

from dpbook.network_partitioning.runs import deep_network
from dpbook.splitting.grid import grid
from dpbook.splitting.three_ways import (
    layer_partitioning,
    network_partitioning,
)
from dpkit.layer_partition import copies, full_tensors

ROWS, WIDTH, DEPTH = 43, 7, 4  # no multiples of groups or of their devices


def task():
    """A network and its batch, drawn at random, on the CPU."""
    torch.manual_seed(0)
    net = deep_network(WIDTH, DEPTH).double()
    return net, torch.randn(ROWS, WIDTH, dtype=torch.double)


def members(ranks, num_groups, neighbours):
    """The devices of each group, by the table at the top of the module."""
    size = len(ranks) // num_groups
    return [
        {
            ranks[g * size + i if neighbours else g + i * num_groups]
            for i in range(size)
        }
        for g in range(num_groups)
    ]


@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize(
    ("k", "num_groups"), [(2, 1), (2, 2), (4, 2), (6, 2), (6, 3), (8, 4)]
)
def test_every_replica_has_the_gradients_of_one_device(
    get_devices, k, num_groups, neighbours
):
    ranks = get_devices(k)
    assert len(ranks) == k > 1
    split = grid(layer_partitioning, num_groups, neighbours)(*task(), ranks)
    for _ in range(2):  # the second clears the gradients of the first
        split.step()
    net, X = task()
    F.mse_loss(net(X), X).backward()
    expected = [p.grad for p in net.parameters()]
    assert min(grad.abs().max() for grad in expected) > 1e-4
    assert len(split.nets) == num_groups
    for replica in split.nets:
        for first, *others in copies(replica):
            assert len(others) == k // num_groups - 1
            for p in others:
                assert torch.equal(p.grad.cpu(), first.grad.cpu())
        found = full_tensors(replica, lambda p: p.grad).values()
        pairs = zip(found, expected, strict=True)
        assert max((f - e).abs().max() for f, e in pairs) < 1e-12


@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize(
    ("k", "num_groups"), [(2, 1), (2, 2), (4, 2), (6, 3), (8, 4)]
)
def test_pipelines_side_by_side_have_the_gradients_of_one_device(
    get_devices, k, num_groups, neighbours
):
    ranks = get_devices(k)
    split = grid(network_partitioning, num_groups, neighbours)(*task(), ranks)
    for _ in range(2):
        split.step()
    net, X = task()
    F.mse_loss(net(X), X).backward()
    assert len(split.nets) == num_groups
    for replica in split.nets:
        pairs = zip(replica.parameters(), net.parameters(), strict=True)
        errors = [(p.grad.cpu() - q.grad).abs().max() for p, q in pairs]
        assert max(errors) < 1e-12


@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize("num_groups", [2, 3])
@pytest.mark.parametrize("inside", [layer_partitioning, network_partitioning])
def test_each_replica_lies_on_its_group(
    get_devices, inside, num_groups, neighbours
):
    ranks = get_devices(6)
    split = grid(inside, num_groups, neighbours)(*task(), ranks)
    found = [{p.device for p in net.parameters()} for net in split.nets]
    assert found == members(ranks, num_groups, neighbours)
