"""One step on k devices is one step on one, and each planted bug is seen.

The oracle is plain PyTorch on the CPU: the mean loss, backward, and
torch.optim.SGD.
"""

from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.data_parallel import step as data_parallel
from tests.networks import lenet, lenet_params

LR = 0.1
loss = nn.CrossEntropyLoss(reduction="none")


def start():
    return [p.double() for p in lenet_params()]


def batches(batch_size, num_steps=3):
    generator = torch.Generator().manual_seed(batch_size)
    for _ in range(num_steps):
        X = torch.randn(
            batch_size, 1, 28, 28, dtype=torch.double, generator=generator
        )
        yield X, torch.randint(10, (batch_size,), generator=generator)


@cache
def oracle(batch_size):
    params = [p.clone().requires_grad_() for p in start()]
    optimizer = torch.optim.SGD(params, LR)
    for X, y in batches(batch_size):
        optimizer.zero_grad()
        F.cross_entropy(lenet(X, params), y).backward()
        optimizer.step()
    return params


def largest_difference(device_params, reference):
    """Compare every parameter of every replica."""
    return max(
        float((p.detach().cpu() - r.detach()).abs().max())
        for params in device_params
        for p, r in zip(params, reference, strict=True)
    )


def train_on(devices, batch_size, algorithm="ring"):
    device_params = dpkit.replicate(start(), devices)
    for X, y in batches(batch_size):
        dpkit.train_batch(
            lenet, loss, X, y, device_params, devices, LR, algorithm
        )
    return device_params


# For every k: rows that it does not divide, and fewer rows than devices.
@pytest.mark.parametrize("batch_size", [61, 1])
@pytest.mark.parametrize("k", range(1, 6))
def test_k_devices_take_the_step_of_one(get_devices, k, batch_size):
    device_params = train_on(get_devices(k), batch_size)
    assert len(device_params) == k
    reference = oracle(batch_size)
    assert largest_difference([start()], reference) > 1e-4  # it did learn
    assert largest_difference(device_params, reference) < 1e-10


@pytest.mark.parametrize("algorithm", ["star", "tree", "hierarchical:2"])
def test_by_each_algorithm(algorithm):
    device_params = train_on(dpkit.devices(4, "sim"), 7, algorithm)
    assert largest_difference(device_params, oracle(7)) < 1e-10
    for params in device_params[1:]:
        for p, first in zip(params, device_params[0], strict=True):
            assert torch.equal(p.cpu(), first.cpu())


# Bugs to plant. Three devices, seven examples:
# more than one device, and a batch that they do not divide.


def step_is_wrong(kind="sim"):
    device_params = train_on(dpkit.devices(3, kind), batch_size=7)
    return largest_difference(device_params, oracle(7)) > 1e-5


@pytest.mark.parametrize("kind", ["sim", "cpu"])
def test_nothing_planted(kind):
    assert not step_is_wrong(kind)


def test_planted_alias(monkeypatch):
    """Replicas that are one tensor: each adds to the same gradient."""

    def aliasing(params, devices):
        return [[p.to(d).requires_grad_() for p in params] for d in devices]

    monkeypatch.setattr(dpkit, "replicate", aliasing)
    # The check of collectives refuses it at once …
    with pytest.raises(ValueError, match="share one storage"):
        step_is_wrong("cpu")
    # … and without that check the parity test would see it.
    monkeypatch.setattr("dpkit.arguments._check_memory", lambda tensors: None)
    assert step_is_wrong("cpu")


def test_planted_assignment_instead_of_copy(monkeypatch):
    """`tensors[i] = total` names a tensor anew and writes nothing."""

    def assigning(tensors, algorithm):
        for i in range(1, len(tensors)):
            tensors[0] += tensors[i].to(tensors[0].device)
        for i in range(1, len(tensors)):
            tensors[i] = tensors[0].to(tensors[i].device)

    monkeypatch.setattr(data_parallel, "allreduce", assigning)
    assert step_is_wrong()


def test_replica_0_alone_would_not_show_it(monkeypatch):
    """In the first step, what replica 0 says is right all the same."""
    monkeypatch.setattr(
        data_parallel, "allreduce", lambda xs, algorithm: dpkit.reduce(xs)
    )
    devices = dpkit.devices(3, "sim")
    device_params = dpkit.replicate(start(), devices)
    ((X, y),) = batches(7, num_steps=1)
    dpkit.train_batch(lenet, loss, X, y, device_params, devices, LR)
    reference = [p.clone().requires_grad_() for p in start()]
    F.cross_entropy(lenet(X, reference), y).backward()
    with torch.no_grad():
        for p in reference:
            p -= LR * p.grad
    assert largest_difference(device_params[:1], reference) < 1e-10
    assert largest_difference(device_params, reference) > 1e-5


def test_planted_mean_of_means(monkeypatch):
    """Each shard's mean, averaged: wrong where shards differ in size."""

    def sgd(params, lr, batch_size):
        with torch.no_grad():
            for p in params:
                p -= lr * p.grad / 3

    monkeypatch.setattr(data_parallel, "sgd", sgd)
    monkeypatch.setitem(globals(), "loss", nn.CrossEntropyLoss())
    # The loss is refused at the door, and again where it does not say …
    with pytest.raises(ValueError, match="the loss is a mean"):
        step_is_wrong()
    monkeypatch.setattr(data_parallel, "check_sum", lambda loss: None)
    with pytest.raises(ValueError, match="the loss is a mean"):
        step_is_wrong()
    # … and without these checks the parity test would see it.
    monkeypatch.setattr(data_parallel, "tried_as_sum", lambda loss: loss)
    assert step_is_wrong()


def test_planted_sum_instead_of_mean(monkeypatch):
    """Each device divides by its shard, and the means are added."""

    def sgd(params, lr, batch_size):
        with torch.no_grad():
            for p in params:
                p -= lr * p.grad / (batch_size / 3)

    monkeypatch.setattr(data_parallel, "sgd", sgd)
    assert step_is_wrong()
