"""Code of the kind that textbooks print runs on simulated devices as it is.

Nothing of dpkit is used here but the devices: parameters, allreduce, split and
step are plain PyTorch with `.to(device)`, as one writes them for GPUs.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit

scale = 0.01
loss = nn.CrossEntropyLoss(reduction="none")


def initial_params():
    torch.manual_seed(0)
    params = []
    for shape in [(20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10)]:
        params.append(torch.randn(size=shape) * scale)
        params.append(torch.zeros(shape[0 if len(shape) == 4 else 1]))
    return params


def lenet(X, params):
    conv = F.conv2d(input=X, weight=params[0], bias=params[1])
    pooled = F.avg_pool2d(F.relu(conv), kernel_size=(2, 2), stride=(2, 2))
    conv = F.conv2d(input=pooled, weight=params[2], bias=params[3])
    pooled = F.avg_pool2d(F.relu(conv), kernel_size=(2, 2), stride=(2, 2))
    flat = pooled.reshape(pooled.shape[0], -1)
    hidden = F.relu(torch.mm(flat, params[4]) + params[5])
    return torch.mm(hidden, params[6]) + params[7]


def get_params(params, device):
    new_params = [p.to(device) for p in params]
    for p in new_params:
        p.requires_grad_()
    return new_params


def allreduce(data):
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i][:] = data[0].to(data[i].device)


def split_batch(X, y, devices):
    assert X.shape[0] == y.shape[0]
    return tuple(
        [piece.to(d) for piece, d in zip(t.chunk(len(devices)), devices)]
        for t in (X, y)
    )


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for p in params:
            p -= lr * p.grad / batch_size
            p.grad.zero_()


def train_batch(X, y, device_params, devices, lr):
    X_shards, y_shards = split_batch(X, y, devices)
    losses = [
        loss(lenet(X_shard, W), y_shard).sum()
        for X_shard, y_shard, W in zip(X_shards, y_shards, device_params)
    ]
    for shard_loss in losses:
        shard_loss.backward()
    with torch.no_grad():
        for i in range(len(device_params[0])):
            allreduce([params[i].grad for params in device_params])
    for params in device_params:
        sgd(params, lr, X.shape[0])


def trained(devices):
    device_params = [get_params(initial_params(), d) for d in devices]
    torch.manual_seed(1)
    for _ in range(3):
        X, y = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))
        train_batch(X, y, device_params, devices, lr=0.2)
    return device_params


@pytest.mark.parametrize("k", [2, 4])
def test_the_listing_trains_on_k_devices(k):
    (reference,) = trained(dpkit.devices(1, "sim"))
    assert not torch.equal(reference[7].cpu(), initial_params()[7])
    for params in trained(dpkit.devices(k, "sim")):
        for p, q in zip(params, reference, strict=True):
            torch.testing.assert_close(p.cpu(), q.cpu())


def test_allreduce_prints_as_on_gpus(capsys):
    data = [
        torch.ones((1, 2), device=d) * (i + 1)
        for i, d in enumerate(dpkit.devices(2, "sim"))
    ]
    print("before allreduce:\n", data[0], "\n", data[1])
    allreduce(data)
    print("after allreduce:\n", data[0], "\n", data[1])
    assert capsys.readouterr().out == (
        "before allreduce:\n tensor([[1., 1.]], device='sim:0') \n"
        " tensor([[2., 2.]], device='sim:1')\n"
        "after allreduce:\n tensor([[3., 3.]], device='sim:0') \n"
        " tensor([[3., 3.]], device='sim:1')\n"
    )


def test_products_of_matrices():
    """The loop that measurements of asynchronous execution use."""
    device = dpkit.devices(2, "sim")[1]
    x = torch.rand(size=(40, 40), device=device)
    products = [x.mm(x) for _ in range(5)]
    copies = [y.to("cpu", non_blocking=True) for y in products]
    torch.sim.synchronize(device)
    assert torch.equal(copies[4], x.cpu() @ x.cpu())
