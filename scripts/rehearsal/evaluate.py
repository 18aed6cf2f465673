"""Evaluation on all GPUs, compared with one."""

import torch
from torch import nn

import dpkit

if __name__ == "__main__":
    gpus = dpkit.devices(kind="cuda")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 5))
    X = torch.randn(11, 6, 6)
    y = net(X).argmax(1)
    y[7:] = (y[7:] + 1) % 5  # 7 of 11 are right
    batches = [(X, y)] * 3
    found = [
        dpkit.evaluate_accuracy(net, batches, devices)
        for devices in (gpus[:1], gpus)
    ]
    print(f"accuracy on 1 and on {len(gpus)}: {found}")
    assert found == [7 / 11] * 2, found
