# refused: away from
import dpkit
from dpbook.common.batches import Batches
from dpbook.common.models import lenet, lenet_params


def train_scaled(train_set, test_set, devices, batch_size, lr, num_epochs):
    batches = Batches(*train_set, batch_size), Batches(*test_set, 50)
    return dpkit.train(
        lenet, loss, lenet_params(), *batches, devices, lr, num_epochs
    )


# refused: trained on 1 device, not 3
import dpkit
from dpbook.common.batches import Batches
from dpbook.common.models import lenet, lenet_params


def train_scaled(train_set, test_set, devices, batch_size, lr, num_epochs):
    train_batches = Batches(*train_set, batch_size * len(devices))
    batches = train_batches, Batches(*test_set, 50)
    return dpkit.train(
        lenet, loss, lenet_params(), *batches, devices[:1], lr, num_epochs
    )


# refused: its accuracy on the test set
import dpkit
from dpbook.common.batches import Batches
from dpbook.common.models import lenet, lenet_params


def train_scaled(train_set, test_set, devices, batch_size, lr, num_epochs):
    batches = Batches(*train_set, batch_size * len(devices))
    return dpkit.train(
        lenet, loss, lenet_params(), batches, batches, devices, lr, num_epochs
    )


# refused: not an accuracy for each
def accuracies_by_rate(rates, batches, tests, devices, num_epochs):
    return {rates[0]: 0.5}


# refused: nothing was sent to sim:1, sim:2
import dpkit
from dpbook.common.models import lenet, lenet_params


def accuracies_by_rate(rates, batches, tests, devices, num_epochs):
    data = batches, tests, devices[:1]
    return {
        lr: dpkit.train(
            lenet, loss, lenet_params(), *data, lr, num_epochs
        ).accuracies[-1]
        for lr in rates
    }


# refused: expected
import dpkit
from dpbook.common.models import lenet, lenet_params


def accuracies_by_rate(rates, *rest):
    accuracies, params = {}, lenet_params()
    for lr in rates:  # each goes on from where the one before has ended
        *data, num_epochs = rest
        record = dpkit.train(lenet, loss, params, *data, lr, num_epochs)
        params = [p.detach().cpu() for p in record.device_params[0]]
        accuracies[lr] = record.accuracies[-1]
    return accuracies


# refused: expected
import dpkit
from dpbook.common.models import lenet, lenet_params


def accuracies_by_rate(rates, batches, tests, devices, num_epochs):
    data = batches, tests, devices
    return {
        lr: dpkit.train(
            lenet, loss, lenet_params(), *data, lr, num_epochs
        ).accuracies[0]
        for lr in rates
    }


# refused: expected
import dpkit
from dpbook.common.models import lenet, lenet_params


def accuracies_by_rate(rates, batches, tests, devices, num_epochs):
    data = batches, tests, devices
    return {
        lr: max(
            dpkit.train(
                lenet, loss, lenet_params(), *data, lr, num_epochs
            ).accuracies
        )
        for lr in rates
    }


# refused: carries
import dpkit


def allreduce_by_parts(tensors):
    dpkit.allreduce(tensors, algorithm="star")


# refused: rank 0 is wrong at [6]
import dpkit


def allreduce_by_parts(tensors):
    size = len(tensors[0]) // len(tensors)
    for r in range(len(tensors)):
        part = [t[r * size : (r + 1) * size] for t in tensors]
        dpkit.reduce(part, root=r)
        dpkit.broadcast(part, root=r)


# refused: rank 0 is wrong at [4, 5, 6, 7]
import dpkit


def allreduce_by_parts(tensors):
    parts = [t.tensor_split(len(tensors)) for t in tensors]
    for r in range(len(tensors)):
        dpkit.reduce([p[r] for p in parts], root=r)


# refused: rank 1 is wrong
def allreduce_by_parts(tensors):
    total = sum(t.to(tensors[0].device) for t in tensors)
    tensors[0].copy_(total)
    for r in range(1, len(tensors)):
        tensors[r] = total.to(tensors[r].device)


# refused: goes through the CPU
def allreduce_by_parts(tensors):
    total = sum(t.cpu() for t in tensors)
    for t in tensors:
        t.copy_(total)


# refused: the accuracy is 5/7
import dpkit


def accuracy_on_all(net, X, y, device_params, devices):
    X_shards, y_shards = dpkit.split_batch(X, y, devices)
    means = [
        (net(X, p).argmax(1) == y).float().mean().item()
        for X, y, p in zip(X_shards, y_shards, device_params)
        if len(X)
    ]
    return sum(means) / len(means)


# refused: nothing to do
def accuracy_on_all(net, X, y, device_params, devices):
    answers = net(X.to(devices[0]), device_params[0]).argmax(1)
    return (answers == y.to(devices[0])).sum().item() / len(y)


# refused: a device waits for another
import dpkit


def accuracy_on_all(net, X, y, device_params, devices):
    X_shards, y_shards = dpkit.split_batch(X, y, devices)
    count = 0
    for X, labels, params in zip(X_shards, y_shards, device_params):
        if len(X):
            count += (net(X, params).argmax(1) == labels).sum().item()
    return count / len(y)


# refused: empty shard
import dpkit


def accuracy_on_all(net, X, y, device_params, devices):
    X_shards, y_shards = dpkit.split_batch(X, y, devices)
    counts = [
        (net(X, p).argmax(1) == y).sum().item()
        for X, y, p in zip(X_shards, y_shards, device_params)
    ]
    return sum(counts) / len(y)


# refused: more than losses
import dpkit
import torch
from torch.nn import functional as F


def shard_losses(module, devices, X, y):
    scores = dpkit.DataParallel(module, devices)(X)
    losses = F.cross_entropy(scores, y.to(scores.device), reduction="none")
    parts = losses.tensor_split(len(devices))
    return torch.stack([part.sum() for part in parts]) / len(X)


# refused: it returned None
def shard_losses(module, devices, X, y):
    pass


# refused: have norm
def clip_shards(shards, max_norm):
    for shard in shards:
        shard *= (max_norm / shard.norm()).clamp(max=1)


# refused: bytes, where
import torch


def clip_shards(shards, max_norm):
    whole = torch.cat([shard.to(shards[0].device) for shard in shards])
    scale = min(1.0, max_norm / float(whole.norm()))
    for shard in shards:
        shard *= scale


# refused: messages, where
def accumulated_step(parallel, loss, batches):
    for X, y in batches:
        parallel.forward_backward(
            X, y, lambda out, y: loss(out, y) / len(batches)
        )


# refused: away from the mean
def accumulated_step(parallel, loss, batches):
    with parallel.no_sync():
        for X, y in batches[:-1]:
            parallel.forward_backward(X, y, loss)
    parallel.forward_backward(*batches[-1], loss)


# refused: away from the mean
def accumulated_step(parallel, loss, batches):
    parallel.forward_backward(*batches[-1], loss)


# refused: it returned 36
def most_examples(batches, peaks, room):
    return int(batches[0] * room // peaks[0])


# refused: expected 0
def most_examples(batches, peaks, room):
    slope = (peaks[1] - peaks[0]) / (batches[1] - batches[0])
    return int((room - peaks[0]) // slope) + batches[0]


# refused: it returned (0, 3.0), expected (1, 3.0)
def latest_rank(arrivals):
    lasts = [times.index(max(times)) for times in arrivals]
    return max(lasts, key=lasts.count), 3.0


# refused: arrivals [(9.0, 10.0, 0.0), (9.0, 0.0, 11.0)]
def latest_rank(arrivals):
    totals = [sum(of_rank) for of_rank in zip(*arrivals)]
    latest = totals.index(max(totals))
    waited = [
        sum(max(times) - t for t in times)
        for times in arrivals
        if times.index(max(times)) == latest
    ]
    return latest, sum(waited)


# refused: arrivals [(0.0, 2.0, 2.0)]: it returned (2, 2.0)
def latest_rank(arrivals):
    waited = [0.0] * len(arrivals[0])
    for times in arrivals:
        (*_, last) = (r for r, t in enumerate(times) if t == max(times))
        waited[last] += sum(max(times) - t for t in times)
    worst = waited.index(max(waited))
    return worst, waited[worst]
