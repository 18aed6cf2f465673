"""What the chapter on practice launches, on real processes."""

import copy
import os

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dpbook.batch_norm.programs import (
    NUM_STEPS,
    ddp_gradients,
    locations,
    normalized,
    num_right,
    rank_0_alone,
    rank_0_by_module,
    sends_buffers,
    summed_counts,
    train_and_count,
    trained_states,
)
from dpbook.precision.loss_scaling import LR, sharded_steps
from dpkit.processes import Workers

RANKS = 3
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workers():
    with Workers(RANKS, "gloo") as pool:
        pool.run(os.getpid)  # the processes start here
        yield pool


@pytest.fixture
def own_workers():
    """Workers for a test that ends their processes."""
    with Workers(RANKS, "gloo") as pool:
        yield pool


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def away(these, those):
    pairs = zip(these, those, strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize("engine", ["ours", "PyTorch's"])
def test_weighted_losses_give_the_mean_over_examples(
    workers, classifier, engine
):
    X, y = torch.rand(7, 5).double(), torch.arange(7) % 3
    plain, weighted = (
        workers.run(ddp_gradients, engine, weighted, classifier, X, y)
        for weighted in (False, True)
    )
    F.cross_entropy(classifier(X), y).backward()
    whole = [p.grad for p in classifier.parameters()]
    assert len(weighted) == RANKS
    for grads in weighted:
        assert away(grads, whole) < 1e-12
    for grads in plain:
        assert away(grads, whole) > 1e-3


@pytest.mark.parametrize("synchronized", [False, True])
def test_normalized(workers, synchronized):
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4).double()
    X, G = torch.randn(7, 4).double(), torch.randn(7, 4).double()
    ranks = workers.run(normalized, copy.deepcopy(norm), synchronized, X, G)
    X.requires_grad_()
    Y = norm(X)
    Y.backward(G)
    outputs = torch.cat([rank.outputs for rank in ranks])
    gradients = torch.cat([rank.input_gradients for rank in ranks])
    largest = away([outputs, gradients], [Y, X.grad])
    assert len(ranks) == RANKS
    assert (largest < 1e-10) == synchronized
    for rank in ranks:
        same = away([rank.running_var], [norm.running_var]) < 1e-10
        assert same == synchronized


@pytest.mark.parametrize("engine", ["ours", "PyTorch's"])
def test_trained_states(workers, engine):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    net = net.double()
    X, y = torch.randn(2, 7, 4).double(), torch.arange(14).view(2, 7) % 3
    states = workers.run(trained_states, engine, net, X, y)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for X_step, y_step in zip(X, y):
        optimizer.zero_grad()
        F.cross_entropy(net(X_step), y_step).backward()
        optimizer.step()
    assert len(states) == RANKS
    for state in states:
        assert away(state.values(), net.state_dict().values()) < 1e-10


def targets():
    generator = torch.Generator().manual_seed(0)
    found = torch.rand(6, RANKS, RANKS, generator=generator) / 2
    found[2, :, 1] = 3.0  # times 65536 is more than float16 holds
    return found


def on_one_device(skipped):
    params = torch.zeros(RANKS)
    for step, target in enumerate(targets()):
        if step != skipped:
            params = params - LR * (params - target).mean(dim=0)
    return params


def test_a_shared_decision(workers):
    runs = workers.run(sharded_steps, True, targets())
    assert len(runs) == RANKS
    for run in runs:
        assert run.num_updates == 5
        assert run.scales == [2.0**16] * 2 + [2.0**15] * 4
        assert away([torch.tensor(run.parameters)], [on_one_device(2)]) < 1e-3


def test_a_decision_of_each_rank(workers):
    runs = workers.run(sharded_steps, False, targets())
    assert [run.num_updates for run in runs] == [6, 5, 6]
    assert [run.scales[-1] for run in runs] == [2.0**16, 2.0**15, 2.0**16]
    for skipped in (None, 2):
        found = torch.tensor(runs[0].parameters)
        assert away([found], [on_one_device(skipped)]) > 1e-2


@pytest.fixture
def normed():
    """A network with a batch norm, and a batch that three do not divide."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    return net, torch.randn(7, 4).double(), torch.arange(7) % 3


def count_on_one_device(net, X, y):
    """As rank 0 counts: with the statistics of its own rows, 3 of 7."""
    for _ in range(NUM_STEPS):
        net(X[:3])
    return int(num_right(net.eval(), X, y))


@pytest.mark.parametrize("trains_on", [False, True])
@pytest.mark.parametrize("engine", ["ours", "PyTorch's"])
@pytest.mark.parametrize("count", [rank_0_by_module, summed_counts])
def test_counts_after_a_training_step(
    workers, normed, engine, count, trains_on
):
    found = workers.run(train_and_count, engine, count, trains_on, *normed)
    right = count_on_one_device(*normed)
    assert 0 < right < 7
    if engine == "ours" and count is summed_counts:
        return  # each rank has statistics of its own
    assert found[0] == right


def test_pytorchs_engine_sends_buffers_in_an_evaluation(workers, normed):
    net, X, _ = normed
    found = workers.run(sends_buffers, net, X)
    assert found == [[True, True, False]] * RANKS


def test_rank_0_waits_if_it_evaluates_alone(own_workers, normed):
    task = rank_0_alone, False, *normed
    with pytest.raises(TimeoutError) as caught:
        own_workers.run(train_and_count, "PyTorch's", *task, timeout_seconds=5)
    found = locations(caught.value)
    assert found[1:] == [
        f"rank {rank} was waiting in barrier()" for rank in range(1, RANKS)
    ]
    assert "broadcast" in found[0]


def test_rank_0_evaluates_alone_by_our_engine(workers, normed):
    task = rank_0_alone, False, *normed
    found = workers.run(train_and_count, "ours", *task)
    assert found[0] == count_on_one_device(*normed)


def test_who_trains_on_answers_by_chance(workers, normed):
    task = rank_0_alone, True, *normed
    found = workers.run(train_and_count, "PyTorch's", *task)
    assert found[0] == count_on_one_device(*normed)
