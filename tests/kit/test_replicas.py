"""Tests of dpkit.data_parallel.wrapper."""

import copy

import pytest
import torch
from torch import nn

from dpkit.data_parallel.wrapper import replicate_module


def net_on(device):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    return net.double().to(device)


def test_each_lies_on_its_device(get_devices):
    devices = get_devices(3)
    net = net_on(devices[0])
    replicas = replicate_module(net, devices)
    assert len(replicas) == 3
    assert replicas[0] is net
    for replica, device in zip(replicas, devices, strict=True):
        assert type(replica) is type(net)
        held = replica.state_dict()
        assert list(held) == list(net.state_dict())
        for name, tensor in net.state_dict().items():
            assert held[name].device == device
            assert torch.equal(held[name].cpu(), tensor.cpu())


def test_no_two_share_storage(get_devices):
    devices = get_devices(3)
    net = net_on(devices[0])
    before = copy.deepcopy(net.state_dict())
    replicas = replicate_module(net, devices)
    with torch.no_grad():
        for rank, replica in enumerate(replicas[1:], start=1):
            for tensor in replica.state_dict().values():
                tensor.fill_(rank)
    for rank, replica in enumerate(replicas[1:], start=1):
        held = replica.state_dict().values()
        assert all(bool((tensor == rank).all()) for tensor in held)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_no_new_leaves(get_devices):
    devices = get_devices(3)
    net = net_on(devices[0])
    net[0].weight.requires_grad_(False)
    for replica in replicate_module(net, devices)[1:]:
        named = dict(replica.named_parameters())
        assert not named.pop("0.weight").requires_grad
        assert named
        assert all(p.requires_grad and not p.is_leaf for p in named.values())
        assert not any(b.requires_grad for b in replica.buffers())


def test_backward_ends_in_the_module(get_devices):
    devices = get_devices(3)
    net = nn.Linear(2, 1).to(devices[0])
    replicas = replicate_module(net, devices)
    outputs = [
        replica(torch.full((1, 2), 10.0**rank, device=device)).to("cpu")
        for rank, (replica, device) in enumerate(zip(replicas, devices))
    ]
    torch.cat(outputs).sum().backward()
    assert torch.equal(net.weight.grad.cpu(), torch.full((1, 2), 111.0))
    assert torch.equal(net.bias.grad.cpu(), torch.tensor([3.0]))


def test_tied_parameters_stay_tied(get_devices):
    devices = get_devices(2)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(devices[0])
    net[1].weight = net[0].weight
    replica = replicate_module(net, devices)[1]
    assert replica[1].weight is replica[0].weight
    assert len(list(replica.parameters())) == 3


def test_a_module_held_twice_stays_one(get_devices):
    devices = get_devices(2)
    layer = nn.Linear(3, 3)
    net = nn.Sequential(layer, nn.ReLU(), layer).to(devices[0])
    replica = replicate_module(net, devices)[1]
    assert replica[0] is replica[2]
    assert replica[0] is not layer


def test_what_is_absent_stays_absent(get_devices):
    devices = get_devices(2)
    net = nn.Linear(3, 3, bias=False).to(devices[0])
    net.register_buffer("mask", None)
    net.register_module("norm", None)
    replica = replicate_module(net, devices)[1]
    assert replica.bias is replica.mask is replica.norm is None


def test_what_a_replica_sets_is_its_own(get_devices):
    devices = get_devices(2)
    net = net_on(devices[0])
    replica = replicate_module(net, devices)[1]
    replica[0].note = "seen"
    replica[1].running_mean = torch.zeros(1)
    replica[2].register_buffer("mask", torch.ones(1))
    replica.add_module("last", nn.ReLU())
    replica[0].eval()
    assert not hasattr(net[0], "note")
    assert net[1].running_mean.shape == (6,)
    assert not hasattr(net[2], "mask")
    assert len(net) == 3
    assert net[0].training


@pytest.mark.parametrize("is_training", [True, False])
def test_modes(get_devices, is_training):
    devices = get_devices(2)
    net = net_on(devices[0]).train(is_training)
    net[1].train(not is_training)
    replica = replicate_module(net, devices)[1]
    assert [m.training for m in replica] == [m.training for m in net]
