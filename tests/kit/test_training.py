"""Tests of dpkit.training."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import dpkit


def net(X, params):
    return X @ params[0] + params[1]


def run(devices, num_epochs=3, algorithm="ring"):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(50, 4, generator=generator)
    y = (X[:, 0] > 0).long()
    batches = [(X[:20], y[:20]), (X[20:40], y[20:40]), (X[40:], y[40:])]
    params = [torch.zeros(4, 2), torch.zeros(2)]
    loss = nn.CrossEntropyLoss(reduction="none")
    return params, dpkit.train(
        net, loss, params, batches, batches, devices, 0.5, num_epochs,
        algorithm,
    )  # fmt: skip


def test_training_learns_and_is_recorded(get_devices):
    devices = get_devices(2)
    params, record = run(devices)
    assert record.devices == devices
    assert len(record.accuracies) == len(record.seconds) == 3
    assert record.accuracies[-1] > 0.9
    assert all(seconds > 0 for seconds in record.seconds)
    assert not any(p.any() for p in params)  # the start stays as it was
    assert len(record.device_params) == 2
    for p, q in zip(*record.device_params, strict=True):
        assert torch.equal(p.cpu(), q.cpu())


def test_the_algorithm_is_that_of_the_caller():
    with pytest.raises(ValueError, match="algorithm: 'rung'"):
        run(dpkit.devices(2, "sim"), algorithm="rung")


def test_training_is_the_steps_and_the_tests_that_were_asked_for(get_devices):
    devices = get_devices(2)
    X, y = torch.eye(4), torch.arange(4)
    net, loss = lambda X, p: X @ p[0], nn.CrossEntropyLoss(reduction="none")
    batches, tests = [(X[:3], y[:3]), (X[3:], y[3:])], [(X, y.flip(0))]
    params = [torch.zeros(4, 4)]
    record = dpkit.train(net, loss, params, batches, tests, devices, 0.5, 2)
    by_hand = dpkit.replicate(params, devices)
    for _ in range(2):
        for batch in batches:
            dpkit.train_batch(net, loss, *batch, by_hand, devices, lr=0.5)
    assert torch.equal(record.device_params[1][0], by_hand[1][0])
    assert record.accuracies == [0.0, 0.0]  # the test labels are wrong


def test_seconds_are_those_of_the_steps(kind, get_devices, watch):
    def slow(X, params):
        watch(0.05 if torch.is_grad_enabled() else 0.5)
        return X @ params[0]

    batches = [(torch.eye(4), torch.arange(4))]
    record = dpkit.train(
        slow, lambda out, y: out, [torch.zeros(4, 4)], batches, batches,
        get_devices(1), 0.5, 1,
    )  # fmt: skip
    if kind == "sim":
        assert 0 < record.seconds[0] < 1e-3
        assert "simulated (v100, nvlink2)" in str(record)
    else:
        assert record.seconds[0] == pytest.approx(0.05)
        assert "s/epoch measured" in str(record)


def test_an_epoch_without_batches(get_devices):
    batches = [(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64))]
    args = [lambda X, p: X * p[0], lambda out, y: out, [torch.ones(1)]]
    for train_batches, epoch in (([], 1), (iter(batches), 2)):
        with pytest.raises(ValueError, match=rf"to train on \(epoch: {epoch}"):
            dpkit.train(*args, train_batches, batches, get_devices(1), 0.1, 2)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_any_number_of_devices_learns_alike(get_devices, k):
    _, one = run(get_devices(1))
    _, many = run(get_devices(k))
    assert one.accuracies == many.accuracies


def test_record_in_words(get_devices):
    record = dpkit.TrainingRecord(
        get_devices(1), [0.5, 0.75], [1.0, 2.0], "measured"
    )
    words = "test accuracy 0.75, 1.5 s/epoch measured, on "
    assert str(record).startswith(words)
    record = dpkit.TrainingRecord(get_devices(1))
    assert str(record).startswith("no epoch yet, on ")


def test_no_epochs(get_devices):
    with pytest.raises(ValueError, match=r"\(num_epochs: 0\)"):
        run(get_devices(1), num_epochs=0)


def test_progress_is_shown(forking):
    program = (
        "import dpkit, torch\n"
        "dpkit.train(lambda X, params: X * params[0], lambda out, y: out,\n"
        "    [torch.ones(1)], [(torch.ones(2, 1), torch.ones(2))] * 3,\n"
        "    [(torch.ones(2, 1), torch.zeros(2, dtype=torch.long))],\n"
        "    dpkit.devices(2, 'cpu'), 0.1, num_epochs=2)"
    )
    # tqdm reads the variable when it is imported, as it is where forks begin.
    for popen, disable, parts in (
        (forking.Popen, "", ("epoch 1:", "epoch 2:")),
        (subprocess.Popen, "1", ()),
    ):
        run = popen(
            [sys.executable, "-c", program],
            env=os.environ | {"TQDM_DISABLE": disable},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _, told = run.communicate()
        assert run.returncode == 0
        assert all(part in told for part in parts)
        assert bool(told) == bool(parts)
