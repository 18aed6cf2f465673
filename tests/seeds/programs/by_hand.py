"""Data parallelism by hand: LeNet in one process, on several GPUs.

A program for GPUs, which knows nothing of simulated ones.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from dpbook.common.datasets import load_fashion_mnist

SCALE = 0.01
loss = nn.CrossEntropyLoss(reduction="none")


def make_params():
    """Draw the parameters of LeNet."""
    shapes = (20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10)
    sizes = 20, 50, 128, 10
    params = []
    for shape, size in zip(shapes, sizes):
        params += [torch.randn(size=shape) * SCALE, torch.zeros(size)]
    return params


def lenet(X, params):
    """Return the scores of images."""
    h = F.relu(F.conv2d(input=X, weight=params[0], bias=params[1]))
    h = F.avg_pool2d(input=h, kernel_size=(2, 2), stride=(2, 2))
    h = F.relu(F.conv2d(input=h, weight=params[2], bias=params[3]))
    h = F.avg_pool2d(input=h, kernel_size=(2, 2), stride=(2, 2))
    h = h.reshape(h.shape[0], -1)
    h = F.relu(torch.mm(h, params[4]) + params[5])
    return torch.mm(h, params[6]) + params[7]


def get_params(params, device):
    """Copy parameters to a device, where they get gradients."""
    copies = [p.to(device) for p in params]
    for p in copies:
        p.requires_grad_()
    return copies


def allreduce(data):
    """Add tensors of several devices; each device gets the sum."""
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i][:] = data[0].to(data[i].device)


def split_batch(X, y, devices):
    """Scatter a batch and its labels over devices."""
    assert X.shape[0] == y.shape[0]
    return nn.parallel.scatter(X, devices), nn.parallel.scatter(y, devices)


def train_batch(X, y, device_params, devices, lr):
    """Take a step of SGD on all devices; return the loss of each shard."""
    X_shards, y_shards = split_batch(X, y, devices)
    losses = [
        loss(lenet(X_shard, params), y_shard).sum()
        for X_shard, y_shard, params in zip(X_shards, y_shards, device_params)
    ]
    for one in losses:
        one.backward()
    with torch.no_grad():
        for i in range(len(device_params[0])):
            allreduce([params[i].grad for params in device_params])
        for params in device_params:
            for p in params:
                p -= lr * p.grad / X.shape[0]
                p.grad.zero_()
    return losses


def evaluate_accuracy(net, batches, device):
    """Return the share of right answers, computed on one device."""
    right = total = 0
    with torch.no_grad():
        for X, y in batches:
            scores = net(X.to(device))
            right += float((scores.argmax(dim=1) == y.to(device)).sum())
            total += len(y)
    return right / total


def batches_of(images, labels, size):
    """Return a pass through examples, in order."""
    return list(zip(images.split(size), labels.split(size)))


def train(params, devices, batch_size, lr, num_epochs=1):
    """Train on all devices; return the accuracy and seconds of an epoch."""
    train_set, test_set = load_fashion_mnist()
    train_iter = batches_of(*(part[:1024] for part in train_set), batch_size)
    test_iter = batches_of(*test_set, 500)
    device_params = [get_params(params, d) for d in devices]
    begun = time.time()
    for _ in range(num_epochs):
        for X, y in train_iter:
            train_batch(X, y, device_params, devices, lr)
            torch.cuda.synchronize()
    seconds = (time.time() - begun) / num_epochs
    accuracy = evaluate_accuracy(
        lambda X: lenet(X, device_params[0]), test_iter, devices[0]
    )
    return accuracy, seconds


def main(num_gpus):
    """Print what each part does, and then train."""
    torch.manual_seed(0)
    params = make_params()
    devices = [torch.device("cuda", i) for i in range(num_gpus)]
    new_params = get_params(params, devices[-1])
    print("b1 weight:", new_params[1])
    print("b1 grad:", new_params[1].grad)
    data = [
        torch.ones((1, 2), device=d) * (i + 1) for i, d in enumerate(devices)
    ]
    print("before allreduce:", *data, sep="\n")
    allreduce(data)
    print("after allreduce:", *data, sep="\n")
    table = torch.arange(20).reshape(4, 5)
    print("input:", table)
    print("load into", devices)
    print("output:", nn.parallel.scatter(table, devices))
    accuracy, seconds = train(params, devices, batch_size=256, lr=0.2)
    print(f"test acc: {accuracy:.2f}, {seconds:.6f} sec/epoch on {devices}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
