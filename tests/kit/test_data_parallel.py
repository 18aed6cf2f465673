"""Tests of dpkit.data_parallel; its parity is in test_transparency."""

import pytest
import torch
from torch import nn

import dpkit
from dpkit.data_parallel import allreduce_gradients


def net(X, params):
    return X @ params[0]


def loss(outputs, y):
    return (outputs[:, 0] - y) ** 2 / 2


def step(devices, X, y, device_params, loss=loss):
    dpkit.train_batch(net, loss, X, y, device_params, devices, lr=0.5)


def test_gradients_are_sums_over_the_batch(get_devices):
    devices = get_devices(3)
    device_params = dpkit.replicate([torch.zeros(2, 1)], devices)
    X, y = torch.arange(14.0).reshape(7, 2), torch.arange(7.0)
    step(devices, X, y, device_params)
    for (p,) in device_params:
        assert torch.equal(p.grad.cpu(), X.T @ -y[:, None])
        assert torch.allclose(p.cpu(), -0.5 * p.grad.cpu() / 7)


def test_a_second_step_forgets_the_first(get_devices):
    devices = get_devices(2)
    X, y = torch.randn(5, 2), torch.randn(5)
    once = dpkit.replicate([torch.zeros(2, 1)], devices)
    step(devices, X, y, once)
    again = dpkit.replicate([torch.zeros(2, 1)], devices)
    again[0][0].grad = torch.full((2, 1), 9.0, device=devices[0])
    step(devices, X, y, again)
    assert torch.equal(once[0][0], again[0][0])


def test_a_loss_that_is_summed_already(get_devices):
    devices = get_devices(2)
    X, y = torch.randn(5, 2), torch.randn(5)
    each, total = (dpkit.replicate([torch.ones(2, 1)], devices) for _ in "ab")
    step(devices, X, y, each)
    step(devices, X, y, total, lambda outputs, y: loss(outputs, y).sum())
    assert torch.equal(each[1][0], total[1][0])


def test_empty_shards_are_not_run(get_devices):
    devices = get_devices(4)
    device_params = dpkit.replicate([torch.ones(2, 1)], devices)
    rows_seen = []

    def watched(X, params):
        rows_seen.append(len(X))
        return net(X, params)

    X, y = torch.randn(3, 2), torch.randn(3)
    dpkit.train_batch(watched, loss, X, y, device_params, devices, lr=0.5)
    assert rows_seen == [1, 1, 1]
    assert torch.equal(device_params[3][0].cpu(), device_params[0][0].cpu())


def test_a_parameter_that_the_net_does_not_use(get_devices):
    devices = get_devices(2)
    device_params = dpkit.replicate([torch.ones(2, 1), torch.ones(3)], devices)
    step(devices, torch.randn(5, 2), torch.randn(5), device_params)
    assert device_params[1][1].tolist() == [1, 1, 1]


def test_a_module_of_examples_alone(get_devices):
    devices = get_devices(2)
    replicas = dpkit.replicate([torch.ones(2, 1)], devices)
    told = (
        r"the network is a module, .* \(type: Linear\); "
        r"dpkit\.DataParallel takes modules"
    )
    X, y = torch.ones(5, 2), torch.ones(5)
    linear = nn.Linear(2, 1)
    with pytest.raises(TypeError, match=told):
        dpkit.train_batch(linear, loss, X, y, replicas, devices, lr=0.5)
    for (p,) in replicas:
        assert p.grad is None


class ModuleOfParameters(nn.Module):
    def forward(self, X, params: list[torch.Tensor]):
        return X @ params[0]


@pytest.mark.parametrize("made", [lambda x: x, torch.jit.script])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_a_module_of_examples_and_parameters(made, get_devices):
    devices = get_devices(2)
    X, y = torch.randn(5, 2), torch.randn(5)
    start = [torch.ones(2, 1)]
    expected = dpkit.replicate(start, devices)
    step(devices, X, y, expected)
    found = dpkit.replicate(start, devices)
    module = made(ModuleOfParameters())
    dpkit.train_batch(module, loss, X, y, found, devices, lr=0.5)
    assert torch.equal(found[1][0], expected[1][0])


def test_allreduce_gradients_over_lists_of_unequal_length(get_devices):
    replicas = dpkit.replicate([torch.ones(2), torch.ones(3)], get_devices(2))
    with pytest.raises(ValueError, match="shorter"):
        allreduce_gradients([replicas[0], replicas[1][:1]])


def test_bad_batches(get_devices):
    devices = get_devices(2)
    device_params = dpkit.replicate([torch.ones(2, 1)], devices)
    with pytest.raises(ValueError, match=r"no examples .*\(0, 2\)"):
        step(devices, torch.zeros(0, 2), torch.zeros(0), device_params)
    with pytest.raises(ValueError, match="examples: 4, labels: 3"):
        step(devices, torch.zeros(4, 2), torch.zeros(3), device_params)
    with pytest.raises(ValueError, match="no rows"):
        step(devices, torch.tensor(1.0), torch.zeros(3), device_params)
    with pytest.raises(ValueError, match="lists: 1, devices: 2"):
        step(devices, torch.ones(3, 2), torch.zeros(3), device_params[:1])
