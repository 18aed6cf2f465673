"""The experiment on large batches: one run, and that it stands for k."""

import copy
from itertools import islice

import pytest
import torch
from recorders.large_batches import steps_to
from torch.nn import functional as F

import dpkit
from dpbook.large_batches import runs as lab
from dpbook.large_batches.runs import predicted_seconds, simulated_seconds
from dpkit.data_parallel import BucketedDataParallel

SHORT = lab.Recipe(num_epochs=2, warmup_epochs=1)


def test_the_sets():
    train_set, test_set = lab.sets()
    assert train_set.images.shape == (lab.NUM_EXAMPLES, 1, 14, 14)
    assert test_set.images.shape == (2000, 1, 14, 14)
    assert len(train_set.labels) == lab.NUM_EXAMPLES


def test_the_seed_decides_the_network():
    a, b, c = (list(lab.network(s).parameters()) for s in (3, 3, 4))
    assert all(torch.equal(p, q) for p, q in zip(a, b))
    assert not torch.equal(a[0], c[0])


@pytest.mark.parametrize("k", [2, 3])
def test_k_devices_take_the_steps_of_one(k):
    """With momentum, in 64 bits, all replicas, and ragged shards."""
    start = lab.network(1).double()
    images, labels = (part[:40] for part in lab.sets()[0])
    images = images.double()
    parallel = BucketedDataParallel(start, dpkit.devices(k, "sim"))
    alone = copy.deepcopy(start)
    nets = [alone, *parallel.replicas]
    optimizers = [
        torch.optim.SGD(net.parameters(), k * 0.01, momentum=0.9)
        for net in nets
    ]
    for _ in range(3):
        alone.zero_grad()
        F.cross_entropy(alone(images), labels).backward()
        for optimizer in optimizers[1:]:
            optimizer.zero_grad()
        parallel.forward_backward(images, labels, F.cross_entropy)
        for optimizer in optimizers:
            optimizer.step()
    assert len(parallel.replicas) == k > 1
    for replica in parallel.replicas:
        for p, q, r in zip(*(n.parameters() for n in (replica, alone, start))):
            assert (p.cpu() - q).abs().max() < 1e-12
            assert (q - r).abs().max() > 1e-6


def test_steps_use_the_rate_of_their_number():
    asked = []

    def rate(step):
        asked.append(step)
        return 0.01

    net = lab.network()
    taken = list(islice(lab.steps(net, rate, k=64, seed=0), 10))
    assert taken == list(range(1, 11))
    assert asked[1:] == list(range(10))  # the first one made the optimizer


def test_steps_without_a_rate_change_nothing():
    net = lab.network()
    _ = list(islice(lab.steps(net, lambda step: 0.0, k=64, seed=0), 3))
    for p, q in zip(net.parameters(), lab.network().parameters()):
        assert torch.equal(p, q)


def test_a_run_is_repeatable_and_learns():
    first, again, other = (
        lab.final_error(4, lr=0.04, seed=seed, warmup="gradual", recipe=SHORT)
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
    assert first < 50


def test_the_seed_of_a_run_decides_the_network(monkeypatch):
    """At the rate 0 the network stays what it was."""
    nets = []
    monkeypatch.setattr(lab, "error_percent", nets.append)
    for seed in (0, 3):
        lab.final_error(64, lr=0.0, seed=seed, recipe=SHORT)
        for p, q in zip(nets[-1].parameters(), lab.network(seed).parameters()):
            assert torch.equal(p, q)


def test_the_seed_of_a_run_decides_the_order():
    nets = []
    for seed in (0, 0, 1):
        nets.append(lab.network())
        next(lab.steps(nets[-1], lambda step: 0.1, k=1, seed=seed))
    first, again, other = (next(net.parameters()) for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_rate_that_is_too_large_ends_in_guessing():
    assert lab.final_error(64, lr=50.0, seed=0, recipe=SHORT) == pytest.approx(
        90
    )


def test_steps_to_a_target():
    easy, hard = (steps_to(t, 16, 0.08, 0, 400) for t in (60.0, 25.0))
    assert 0 < easy < hard < 400
    assert easy % 4 == 0  # tested once in 1,024 images
    assert steps_to(1.0, 64, 0.08, 0, max_steps=5) is None


@pytest.mark.parametrize("k", [2, 8])
def test_the_time_of_a_step(k):
    found = simulated_seconds(k, "ethernet25")
    assert predicted_seconds(k, "ethernet25") == pytest.approx(found, rel=0.02)


def test_each_device_has_the_rows_of_one(monkeypatch):
    rows, make = [], lab.network

    def watched():
        net = make()
        net.register_forward_pre_hook(
            lambda module, args: rows.append(len(args[0]))
        )
        return net

    monkeypatch.setattr(lab, "network", watched)
    simulated_seconds(4, "ethernet25")
    assert len(rows) % 4 == 0
    assert set(rows) == {lab.RECIPE.batch_size}
