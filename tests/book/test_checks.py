"""Tests of checks: wrong answers are told apart from right ones."""

import pytest
import torch
from torch import nn

import dpkit
from dpbook.common.batches import Batches
from dpbook.common.checks import check, failure
from dpbook.common.models import lenet, lenet_params

LOSS = nn.CrossEntropyLoss(reduction="none")


def test_no_exercise_of_this_name():
    def allreduce_by_halves(tensors):
        pass

    with pytest.raises(ValueError, match=r"exercise: 'allreduce_by_halves'"):
        check(allreduce_by_halves)


def test_an_answer_that_raises(capsys):
    def allreduce_by_parts(tensors):
        return 1 / 0

    check(allreduce_by_parts)
    words = "not yet (it raised ZeroDivisionError: division by zero)"
    assert capsys.readouterr().out == f"allreduce_by_parts: {words}\n"


def named(name, answer):
    answer.__name__ = name
    return answer


def never_sent_back(tensors):
    parts = [t.tensor_split(len(tensors)) for t in tensors]
    for r in range(len(tensors)):
        dpkit.reduce([p[r] for p in parts], root=r)


def assigned_and_not_copied(tensors):
    total = sum(t.to(tensors[0].device) for t in tensors)
    tensors[0].copy_(total)
    for r in range(1, len(tensors)):
        tensors[r] = total.to(tensors[r].device)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (never_sent_back, "rank 0 is wrong at [4, 5, 6, 7]"),
        (assigned_and_not_copied, "rank 1 is wrong"),
    ],
)
def test_wrong_allreduce(answer, why):
    assert why in failure(named("allreduce_by_parts", answer))


def run(train_batches, test_batches, devices, lr, num_epochs, start=None):
    start = lenet_params() if start is None else start
    return dpkit.train(
        lenet, LOSS, start, train_batches, test_batches, devices, lr,
        num_epochs,
    )  # fmt: skip


def same_batch(train_set, test_set, devices, batch_size, lr, num_epochs):
    batches = Batches(*train_set, batch_size), Batches(*test_set, 50)
    return run(*batches, devices, lr, num_epochs)


def checked_on_the_training_set(train_set, test_set, devices, *rest):
    batch_size, lr, num_epochs = rest
    batches = Batches(*train_set, batch_size * len(devices))
    return run(batches, batches, devices, lr, num_epochs)


def one_device(train_set, test_set, devices, batch_size, lr, num_epochs):
    batches = (
        Batches(*train_set, batch_size * len(devices)),
        Batches(*test_set, 50),
    )
    return run(*batches, devices[:1], lr, num_epochs)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (same_batch, "away from"),
        (one_device, "trained on 1 device, not 3"),
        (checked_on_the_training_set, "accuracy on the test set"),
    ],
)
def test_wrong_scaling(answer, why):
    assert why in failure(named("train_scaled", answer))


def goes_on_from_the_last_rate(rates, *rest):
    accuracies, start = {}, lenet_params()
    for lr in rates:
        record = run(*rest[:3], lr, rest[3], start)
        start = [p.detach().cpu() for p in record.device_params[0]]
        accuracies[lr] = record.accuracies[-1]
    return accuracies


def one_rate(rates, *rest):
    return {rates[0]: run(*rest[:3], rates[0], rest[3]).accuracies[-1]}


def best_epoch(rates, *rest):
    return {lr: max(run(*rest[:3], lr, rest[3]).accuracies) for lr in rates}


def on_one_device(rates, batches, tests, devices, num_epochs):
    return {
        lr: run(batches, tests, devices[:1], lr, num_epochs).accuracies[-1]
        for lr in rates
    }


def first_epoch(rates, *rest):
    return {lr: run(*rest[:3], lr, rest[3]).accuracies[0] for lr in rates}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (goes_on_from_the_last_rate, "expected"),
        (one_rate, "not an accuracy for each"),
        (first_epoch, "expected"),
        (best_epoch, "expected"),
        (on_one_device, "nothing was sent to sim:1, sim:2"),
    ],
)
def test_wrong_rates(answer, why):
    assert why in failure(named("accuracies_by_rate", answer))


def test_a_right_answer_in_other_words():
    """A sum in 32 bits, and fields of the set by name."""

    def accuracy_on_all(net, X, y, device_params, devices):
        shards = zip(*dpkit.split_batch(X, y, devices), device_params)
        counts = [
            (net(X, p).argmax(1) == y).sum().cpu()
            for X, y, p in shards
            if len(X)
        ]
        return sum(counts).float() / len(y)

    def train_scaled(train_set, test_set, devices, batch_size, lr, epochs):
        batches = Batches(
            train_set.images, train_set.labels, len(devices) * batch_size
        )
        return run(batches, Batches(*test_set, 50), devices, lr, epochs)

    assert failure(accuracy_on_all) is None
    assert failure(train_scaled) is None


def test_the_inputs_are_on_simulated_devices():
    seen = []

    def allreduce_by_parts(tensors):
        seen.extend(t.device.type for t in tensors)

    check(allreduce_by_parts)
    assert set(seen) == {"sim"}


# ------------------------------------------------------------ devices


def seconds_of(work, devices, before=True, after=True):
    if before:
        dpkit.synchronize(devices)
    start = dpkit.sim.now()
    work()
    if after:
        dpkit.synchronize(devices)
    return dpkit.sim.now() - start


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda work, devices: None, "returned None"),
        (lambda w, d: seconds_of(w, d, after=False), "where the work takes"),
        (lambda w, d: seconds_of(w, d[:1]), "where the work takes"),
        (lambda w, d: seconds_of(w, d, before=False), "sim:2 was busy before"),
        (lambda w, d: 0.001 * seconds_of(w, d), "where the work takes"),
        (seconds_of, None),
    ],
)
def test_seconds_of(answer, why):
    found = failure(named("seconds_of", answer))
    assert found is None if why is None else why in found


def overlapped(x, count, wait=True, side=True, non_blocking=True):
    products = torch.sim.current_stream(x.device)
    copies = torch.sim.Stream(x.device) if side else products
    results = []
    for _ in range(count):
        y = x @ x
        if wait:
            copies.wait_stream(products)
        with torch.sim.stream(copies):
            results.append(y.to("cpu", non_blocking=non_blocking))
    return results


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda x, count: None, "not a list of 6 copies"),
        (lambda x, count: [(x @ x).cpu()] * count, "1 products, not 6"),
        (lambda x, n: overlapped(x, n, wait=False), "before its product"),
        (lambda x, n: overlapped(x, n, side=False), "after the end of"),
        (lambda x, n: overlapped(x, n, non_blocking=False), "after the end"),
        (overlapped, None),
    ],
)
def test_overlapped(answer, why):
    found = failure(named("overlapped", answer))
    assert found is None if why is None else why in found


def largest_batch(step, first=1):
    def fits(rows):
        try:
            step(rows)
        except torch.OutOfMemoryError:
            return False
        return True

    too_many = first
    while fits(too_many):
        too_many *= 2
    enough = too_many // 2
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if fits(middle):
            enough = middle
        else:
            too_many = middle
    return enough


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda step: None, "returned None"),
        (lambda step: largest_batch(step) + 1, "it returned 2"),
        (lambda step: step(0), "tried a batch of 0"),
        (lambda step: step(10), "OutOfMemoryError"),
        (largest_batch, None),
    ],
)
def test_largest_batch(answer, why):
    found = failure(named("largest_batch", answer))
    assert found is None if why is None else why in found
