"""Tests of lazy modules: layers that learn their shape from a batch."""

import copy
import gc
import pickle
from itertools import product

import pytest
import torch
from torch import nn

from dpkit import sim

sim.register()

# Each with the shape of a batch.
LAYERS = {
    "linear": (lambda **k: nn.LazyLinear(3, **k), (5, 4)),
    "convolution": (lambda **k: nn.LazyConv2d(3, 2, **k), (5, 2, 6, 6)),
    "transposed": (
        lambda **k: nn.LazyConvTranspose2d(3, 2, **k),
        (5, 2, 6, 6),
    ),
    "batch norm": (lambda **k: nn.LazyBatchNorm2d(**k), (5, 2, 6, 6)),
    "instance norm": (
        lambda **k: nn.LazyInstanceNorm2d(
            affine=True, track_running_stats=True, **k
        ),
        (5, 2, 6, 6),
    ),
}
layers = pytest.mark.parametrize("name", LAYERS)


def in_default_device(make):
    with torch.device("sim:1"):
        return make()


# How a layer comes to sim:1 before it has seen a batch.
WAYS = {
    "moved": lambda make: make().to("sim:1"),
    "moved twice": lambda make: make().to("sim:0").to("sim:1"),
    "moved back": lambda make: make().to("sim:0").cpu().to("sim:1"),
    "made there": lambda make: make(device="sim:1"),
    "made by default": in_default_device,
    "copied": lambda make: copy.deepcopy(make().to("sim:1")),
    "converted": lambda make: make().to("sim:1").double().float(),
    "all at once": lambda make: make().double().to("sim:1", torch.float32),
}


def tensors(net):
    return [*net.parameters(), *net.buffers()]


def trained(net, X, seed=3):
    """Return the output and the gradients of the first step."""
    torch.manual_seed(seed)
    out = net(X)
    out.square().sum().backward()
    return [out, *(p.grad for p in net.parameters()), *tensors(net)]


# PyTorch does not copy a buffer without a shape.
NOT_COPIED = {("copied", "batch norm"), ("copied", "instance norm")}


@pytest.mark.parametrize(
    ("way", "name"), sorted({*product(WAYS, LAYERS)} - NOT_COPIED)
)
def test_the_first_batch_gives_what_it_gives_on_the_cpu(way, name):
    make, shape = LAYERS[name]
    X = torch.randn(shape)
    net = WAYS[way](make)
    before = list(net.parameters())
    assert {str(t.device) for t in tensors(net)} == {"sim:1"}
    found = trained(net, X.to("sim:1"))
    expected = trained(make(), X)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert str(a.device) == "sim:1"
        assert torch.equal(a.cpu(), b)
    for p, q in zip(before, net.parameters(), strict=True):
        assert p is q
        assert isinstance(p, nn.Parameter)
        assert not nn.parameter.is_lazy(p)


@layers
def test_until_then_it_is_lazy(name):
    make, _ = LAYERS[name]
    net = make(device="sim:1")
    lazy = [t for t in tensors(net) if nn.parameter.is_lazy(t)]
    assert len(lazy) == len(tensors(make())) - ("norm" in name)
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = lazy[0].shape
    with pytest.raises(ValueError, match="use an uninitialized parameter"):
        lazy[0] + 1
    kinds = {type(t) for t in tensors(net.cpu())}
    assert kinds <= {type(t) for t in tensors(make())}


def test_the_memory_is_taken_with_the_first_batch():
    gc.collect()
    before = torch.sim.memory_allocated(1)
    net = nn.LazyLinear(3).to("sim:1")
    assert torch.sim.memory_allocated(1) == before
    net(torch.ones(1, 4, device="sim:1"))
    assert torch.sim.memory_allocated(1) == before + 4 * (3 * 4 + 3)


def test_an_optimizer_that_was_made_before():
    results = []
    for device in ("cpu", "sim:1"):
        net = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(2)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        trained(net, torch.ones(2, 4, device=device))
        optimizer.step()
        results.append([p.detach().cpu() for p in net.to("cpu").parameters()])
        assert {type(p) for p in net.parameters()} == {nn.Parameter}
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_a_state_without_shapes_is_pickled_and_one_with_shapes_loaded():
    net = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).to("sim:1")
    again = pickle.loads(pickle.dumps(net))
    assert [type(t) for t in tensors(again)][:4] == [
        nn.UninitializedParameter
    ] * 4
    state = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).state_dict()
    net.load_state_dict(state)
    for name, tensor in net.state_dict().items():
        assert str(tensor.device) == "sim:1"
        assert torch.equal(tensor.cpu(), state[name])


def test_lazy_layers_elsewhere():
    for options in ({}, {"device": "cpu"}, {"dtype": torch.float64}):
        net = nn.Sequential(
            nn.LazyLinear(3, **options), nn.LazyBatchNorm1d(**options)
        )
        dtype = options.get("dtype", torch.float32)
        assert net(torch.ones(2, 4, dtype=dtype)).dtype == dtype
        assert type(net[0].weight) is nn.Parameter
        assert type(net[1].running_mean) is torch.Tensor
    made = nn.UninitializedParameter(False, "meta", torch.float64)
    assert type(made) is nn.UninitializedParameter
    assert made.device.type == "meta"
    assert made.data.dtype == torch.float64
    assert not made.requires_grad
    buffer = nn.UninitializedBuffer(device="sim:1", persistent=False)
    assert not buffer.persistent
    assert str(buffer.device) == "sim:1"
