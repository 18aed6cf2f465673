"""What each layer sends, in messages and bytes, is what the formulas say.

By a star, k ranks allreduce n bytes in 2(k - 1) messages of n. To gather n
bytes that k ranks have in shards takes k(k - 1) messages, (k - 1) n bytes in
all; so does a reduce-scatter.
"""

import pytest
import torch
from torch import nn

import dpkit
from dpkit import layer_partition as lp
from dpkit.lab.common.traffic import sent
from dpkit.layer_partition.shards import even_sizes

NOTHING = (0, 0)


def star(k, count):
    return 2 * (k - 1), 2 * (k - 1) * 4 * count


def gathering(k, count):
    return k * (k - 1), (k - 1) * 4 * count


def parts(tensor, dim, devices):
    if dim is None:
        tensors = [tensor] * len(devices)
    else:
        tensors = tensor.split(
            even_sizes(tensor.shape[dim], len(devices)), dim
        )
    tensors = [t.to(d, copy=True) for t, d in zip(tensors, devices)]
    if tensor.is_floating_point():
        for t in tensors:
            t.requires_grad_()
    return tensors


def split_conv(conv, devices, gather_input):
    return lp.ChannelParallelConv2d(conv, devices, gather_input)


def block(devices):
    attention = nn.MultiheadAttention(12, 4, batch_first=True)
    return nn.Sequential(
        lp.Residual(
            nn.Sequential(
                lp.Replicated(nn.LayerNorm(12), devices),
                lp.HeadParallelAttention(attention, devices),
            )
        ),
        lp.Residual(
            nn.Sequential(
                lp.Replicated(nn.LayerNorm(12), devices),
                lp.ParallelMLP(
                    nn.Linear(12, 18), nn.GELU(), nn.Linear(18, 12), devices
                ),
            )
        ),
    )


# The layer, the shape of its input, along which dimension that is sharded,
# and (messages, bytes) forward and backward.
LAYERS = {
    "column": (
        lambda d: lp.ColumnParallelLinear(nn.Linear(5, 8), d),
        ((3, 5), None),
        lambda k: (NOTHING, star(k, 3 * 5)),
    ),
    "row": (
        lambda d: lp.RowParallelLinear(nn.Linear(7, 4), d),
        ((3, 7), 1),
        lambda k: (star(k, 3 * 4), NOTHING),
    ),
    "mlp": (
        lambda d: lp.ParallelMLP(
            nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 4), d
        ),
        ((3, 5), None),
        lambda k: (star(k, 3 * 4), star(k, 3 * 5)),
    ),
    "transformer block": (
        block,
        ((2, 5, 12), None),
        lambda k: (
            (4 * (k - 1), 2 * star(k, 2 * 5 * 12)[1]),
            (4 * (k - 1), 2 * star(k, 2 * 5 * 12)[1]),
        ),
    ),
    "gathered channels": (
        lambda d: split_conv(nn.Conv2d(6, 8, 3), d, True),
        ((2, 6, 5, 7), 1),
        lambda k: (gathering(k, 2 * 6 * 5 * 7), gathering(k, 2 * 6 * 5 * 7)),
    ),
    "channels of replicas": (
        lambda d: split_conv(nn.Conv2d(6, 8, 3), d, False),
        ((2, 6, 5, 7), None),
        lambda k: (NOTHING, star(k, 2 * 6 * 5 * 7)),
    ),
    "towers": (
        lambda d: split_conv(nn.Conv2d(12, 24, 3, groups=12), d, False),
        ((2, 12, 5, 7), 1),
        lambda k: (NOTHING, NOTHING),
    ),
    "embedding": (
        lambda d: lp.VocabParallelEmbedding(nn.Embedding(11, 3), d),
        ((4,), None),
        lambda k: (star(k, 4 * 3), NOTHING),
    ),
    "layer norm": (
        lambda d: lp.Replicated(nn.LayerNorm(5), d),
        ((3, 5), None),
        lambda k: (NOTHING, NOTHING),
    ),
    "joined": (
        lambda d: lp.Joined(dim=1),
        ((3, 7), 1),
        lambda k: (gathering(k, 3 * 7), NOTHING),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("k", range(1, 5))
def test_a_layer_sends_what_the_formula_says(name, k):
    make, (shape, dim), formula = LAYERS[name]
    devices = dpkit.devices(k, kind="sim")
    x = torch.randint(11, shape)
    xs = parts(x if name == "embedding" else x.float(), dim, devices)
    layer = make(devices)
    forward = sent(layer, xs)
    ys = layer(xs)
    gradients = [torch.ones_like(y) for y in ys]
    backward = sent(torch.autograd.backward, ys, gradients)
    assert (forward, backward) == formula(k)


@pytest.mark.parametrize("k", range(1, 5))
def test_the_loss_sends_three_numbers_for_each_example(k):
    devices = dpkit.devices(k, kind="sim")
    shards = parts(torch.randn(6, 11), 1, devices)
    targets = parts(torch.randint(11, (6,)), None, devices)
    forward = sent(lp.vocab_parallel_cross_entropy, shards, targets)
    losses = lp.vocab_parallel_cross_entropy(shards, targets)
    backward = sent(torch.autograd.backward, losses)
    messages, num_bytes = star(k, 6)
    assert forward == (3 * messages, 3 * num_bytes)
    assert backward == NOTHING


@pytest.mark.parametrize("k", range(1, 5))
def test_wrapped_it_sends_copies_besides(k):
    """Of the input on the way in, of the output's gradient on the way back."""
    devices = dpkit.devices(k, kind="sim")
    mlp = lp.ParallelMLP(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 4), devices)
    net = lp.LayerParallel(mlp, devices)
    x = torch.randn(3, 5, device=devices[0], requires_grad=True)
    messages, num_bytes = sent(net, x)
    assert messages == star(k, 12)[0] + k - 1
    assert num_bytes == star(k, 12)[1] + (k - 1) * 4 * 15
    y = net(x)
    messages, num_bytes = sent(y.backward, y)
    assert messages == star(k, 15)[0] + k - 1
    assert num_bytes == star(k, 15)[1] + (k - 1) * 4 * 12


@pytest.mark.parametrize("k", [2, 4])
def test_an_input_that_needs_no_gradient_costs_nothing_backward(k):
    devices = dpkit.devices(k, kind="sim")
    layer = lp.ColumnParallelLinear(nn.Linear(5, 8), devices)
    xs = [torch.ones(3, 5, device=d) for d in devices]
    losses = [y.sum() for y in layer(xs)]
    assert sent(torch.autograd.backward, losses) == NOTHING
