"""The same by ``nn.DataParallel``: a small ResNet-18 on several GPUs.

A program for GPUs, which knows nothing of simulated ones.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from dpbook.common.datasets import load_fashion_mnist


class Residual(nn.Module):
    """Two convolutions, and a way past them."""

    def __init__(self, inputs, outputs, use_1x1conv=False, strides=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, stride=strides)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv3 = (
            nn.Conv2d(inputs, outputs, 1, stride=strides)
            if use_1x1conv
            else None
        )
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, X):
        """Return the sum of both ways."""
        Y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(X)))))
        return F.relu(Y + (X if self.conv3 is None else self.conv3(X)))


def resnet18(num_classes, width=64):
    """Return a ResNet-18 with a small first kernel and no first pooling."""

    def block(inputs, outputs, num_residuals, first_block=False):
        layers = []
        for i in range(num_residuals):
            if i == 0 and not first_block:
                layers.append(
                    Residual(inputs, outputs, use_1x1conv=True, strides=2)
                )
            else:
                layers.append(Residual(outputs, outputs))
        return nn.Sequential(*layers)

    net = nn.Sequential(
        nn.Conv2d(1, width, kernel_size=3, stride=1, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )
    net.add_module("block1", block(width, width, 2, first_block=True))
    for i, factor in enumerate((2, 4, 8), 2):
        inputs, outputs = width * factor // 2, width * factor
        net.add_module(f"block{i}", block(inputs, outputs, 2))
    net.add_module("pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module(
        "fc",
        nn.Sequential(nn.Flatten(), nn.Linear(8 * width, num_classes)),
    )
    return net


def evaluate_accuracy_gpus(net, batches, device):
    """Return the share of right answers; the wrapper uses all devices."""
    net.eval()
    right = total = 0
    with torch.no_grad():
        for X, y in batches:
            right += int((net(X.to(device)).argmax(1) == y.to(device)).sum())
            total += len(y)
    return right / total


def train(net, devices, batch_size, lr, num_steps=None):
    """Train by the wrapper; return it, its losses and the seconds."""
    for layer in net.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.normal_(layer.weight, std=0.01)
    net = nn.DataParallel(net, device_ids=devices).to(devices[0])
    trainer = torch.optim.SGD(net.parameters(), lr)
    loss = nn.CrossEntropyLoss()
    images, labels = (part[:256] for part in load_fashion_mnist()[0])
    losses = []
    begun = time.time()
    for X, y in zip(images.split(batch_size), labels.split(batch_size)):
        trainer.zero_grad()
        X, y = X.to(devices[0]), y.to(devices[0])
        one = loss(net(X), y)
        one.backward()
        trainer.step()
        losses.append(one.item())
        if len(losses) == num_steps:
            break
    return net, losses, time.time() - begun


def main(num_gpus):
    """Train, and evaluate on all devices."""
    torch.manual_seed(0)
    devices = [torch.device("cuda", i) for i in range(num_gpus)]
    net, _, seconds = train(resnet18(10, width=8), devices, 64, 0.1)
    images, labels = (part[:500] for part in load_fashion_mnist()[1])
    batches = list(zip(images.split(250), labels.split(250)))
    accuracy = evaluate_accuracy_gpus(net, batches, devices[0])
    print(f"test acc: {accuracy:.3f}, {seconds:.6f} sec on {devices}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
