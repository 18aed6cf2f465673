"""Where tuples pass between stages, a pipeline is still one device."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpkit
from dpkit.layer_partition.shards import even_sizes
from dpkit.schedules.named import SCHEDULE_NAMES
from dpkit.traffic import sent

WIDE, NARROW = 5, 3


class Fork(nn.Module):
    """Begin two skips: which feature is the largest, and some of them."""

    def forward(self, x):
        return x, x.argmax(dim=1), x[:, :NARROW] * 2


class Past(nn.Module):
    """A layer for the first tensor; the others are only carried."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, tensors):
        x, *others = tensors
        return self.layer(x), *others


class Mixed(nn.Module):
    """Use the skip, and carry it on."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(NARROW, WIDE)

    def forward(self, tensors):
        x, largest, skip = tensors
        return x + self.dense(skip), largest, skip


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(WIDE + NARROW, 4)
        self.table = nn.Embedding(WIDE, 4)

    def forward(self, tensors):
        x, largest, skip = tensors
        return self.dense(torch.cat([x, skip], dim=1)) + self.table(largest)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, WIDE), Fork(), Past(nn.Linear(WIDE, WIDE)),
        Past(nn.Tanh()), Mixed(), Past(nn.Linear(WIDE, WIDE)),
        Past(nn.Tanh()), Joined(),
    ).double()  # fmt: skip


def gradients(module):
    return [p.grad.cpu() for p in module.parameters()]


def assert_one_device(pipeline, reference, X, y):
    """Loss, outputs and all gradients; what is compared is not zero."""
    loss = pipeline.forward_backward(X, y, F.mse_loss)
    expected = F.mse_loss(reference(X), y)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    outputs = pipeline(X).detach().cpu()
    assert (outputs - reference(X).detach()).abs().max() < 1e-10
    pairs = zip(gradients(pipeline), gradients(reference), strict=True)
    for found, wanted in pairs:
        size = wanted.abs().max()
        assert size > 0
        assert (found - wanted).abs().max() < 1e-8 * size


@pytest.mark.parametrize("k", range(1, 5))
@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
@pytest.mark.parametrize("recompute", [False, True])
def test_skips_between_stages(schedule, k, recompute):
    """Tensors of two shapes, and one of integers that has no gradient."""
    num_stages = 2 * k if schedule == "interleaved" else k
    stages = dpkit.split_layers(
        network(), num_stages, sizes=even_sizes(8, num_stages)
    )
    pipeline = dpkit.Pipeline(
        stages, dpkit.devices(k, "sim"), schedule, 2 * k, recompute
    )
    torch.manual_seed(1)
    X, y = torch.randn(4 * k + 1, 6), torch.randn(4 * k + 1, 4)
    assert_one_device(pipeline, network(), X.double(), y.double())


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
@pytest.mark.parametrize("cut", range(1, 8))
def test_cut_anywhere(schedule, cut):
    stages = dpkit.split_layers(network(), 2, sizes=[cut, 8 - cut])
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), schedule, 2)
    X, y = torch.randn(5, 6).double(), torch.randn(5, 4).double()
    assert_one_device(pipeline, network(), X, y)


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
def test_what_crosses_a_cut(schedule):
    """Three tensors go on; the gradients of two of them come back."""
    stages = dpkit.split_layers(network(), 2, sizes=[3, 5])
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"), schedule, 1)
    X, y = torch.randn(7, 6).double(), torch.randn(7, 4).double()
    found = sent(pipeline.forward_backward, X, y, F.mse_loss)
    floats = 7 * (WIDE + NARROW) * 8
    assert found == (3 + 2, 2 * floats + 7 * 8)


class Gives(nn.Module):
    def __init__(self, others):
        super().__init__()
        self.others = others

    def forward(self, x):
        return self.others(x)


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        (lambda x: [x, x], "list"),
        (lambda x: (x, None), "NoneType"),
        (lambda x: (x, (x, x)), "tuple"),
        (lambda x: (x, 2.0), "float"),
        (lambda x: {"x": x}, "dict"),
    ],
)
def test_what_is_no_tuple_of_tensors(others, kind):
    layers = nn.Sequential(nn.Linear(3, 3), Gives(others), nn.Linear(3, 3))
    stages = dpkit.split_layers(layers, 2, sizes=[2, 1])
    pipeline = dpkit.Pipeline(stages, dpkit.devices(2, "sim"))
    X = torch.randn(4, 3)
    words = rf"tuple of tensors \(last layer: 1, type: {kind}\)"
    with pytest.raises(TypeError, match=words):
        pipeline.forward_backward(X, X, F.mse_loss)
