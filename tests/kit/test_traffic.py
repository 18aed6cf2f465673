"""Tests of dpkit.traffic."""

import pytest
import torch

import dpkit
from dpkit.traffic import Traffic, sent


@pytest.fixture
def ranks():
    return dpkit.devices(3, "sim")


def test_counts_copies_between_devices(ranks):
    x = torch.zeros(5, 3, dtype=torch.float64, device=ranks[0])
    y = torch.zeros(5, 3, dtype=torch.float64, device=ranks[1])
    with Traffic() as traffic:
        x.to(ranks[2])
        y.copy_(x)
        y[:2] = x[:2]
    assert traffic.sent == {ranks[0]: 120 + 120 + 48}
    assert traffic.received == {ranks[2]: 120, ranks[1]: 168}


def test_a_copy_of_many_tensors_at_a_time(ranks):
    """As optimizers make it; each of them is a message."""
    sources = [torch.zeros(n, device=ranks[0]) for n in (2, 3)]
    targets = [torch.zeros(n, device=d) for n, d in zip((2, 3), ranks[1:])]
    with Traffic() as traffic:
        torch._foreach_copy_(targets, sources)
    assert traffic.sent == {ranks[0]: 20}
    assert traffic.received == {ranks[1]: 8, ranks[2]: 12}
    assert (traffic.messages, traffic.num_bytes) == (2, 20)


def test_the_cpu_sends_no_messages(ranks):
    x = torch.zeros(5)
    with Traffic() as traffic:
        x.to(ranks[0]).to(ranks[1]).cpu()
    cpu = torch.device("cpu")
    assert traffic.sent == {cpu: 20, ranks[0]: 20, ranks[1]: 20}
    assert traffic.received == {cpu: 20, ranks[0]: 20, ranks[1]: 20}
    assert (traffic.messages, traffic.num_bytes) == (1, 20)


def test_messages_of_some_work_and_of_its_backward(ranks):
    x = torch.ones(5, device=ranks[0], requires_grad=True)
    ys = []
    assert sent(lambda x: ys.append(x.to(ranks[1]).sum()), x) == (1, 20)
    assert sent(ys[0].backward) == (1, 20)


def test_what_stays_on_a_device_is_not_counted(ranks):
    x = torch.zeros(5, device=ranks[0])
    with Traffic() as traffic:
        x.to(ranks[0], copy=True)
        x.clone()
        x.copy_(x + 1)
        x.double()
    assert not traffic.sent
    assert not traffic.received


def test_a_copy_to_another_dtype_sends_what_there_was(ranks):
    x = torch.zeros(5, device=ranks[0])
    with Traffic() as traffic:
        x.to(ranks[1], torch.float64)
    assert traffic.sent[ranks[0]] == traffic.received[ranks[1]] == 20


@pytest.mark.parametrize("k", [2, 3, 5])
def test_star(k):
    """The root receives k - 1 messages and sends k - 1."""
    ranks = dpkit.devices(k, "sim")
    tensors = [torch.zeros(7, device=d) for d in ranks]
    with Traffic() as traffic:
        dpkit.allreduce(tensors, algorithm="star")
    for rank, device in enumerate(ranks):
        messages = k - 1 if rank == 0 else 1
        assert traffic.sent[device] == 28 * messages
        assert traffic.received[device] == 28 * messages
