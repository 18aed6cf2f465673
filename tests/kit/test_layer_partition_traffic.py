"""What each layer sends, in messages and bytes, is what the formulas say.

By a star, k ranks allreduce n bytes in 2(k - 1) messages of n; by a ring in
2k(k - 1) messages of n/k, as many bytes in all. To gather n bytes that k ranks
have in shards takes k(k - 1) messages, (k - 1) n bytes in all; so does a
reduce-scatter.
"""

from inspect import signature

import pytest
import torch
from torch import nn

import dpkit
from dpkit import data_parallel
from dpkit import layer_partition as lp
from dpkit.layer_partition.shards import even_sizes
from dpkit.plans.algorithms import allreduce_plan
from dpkit.traffic import sent

NOTHING = (0, 0)


def star(k, count):
    return 2 * (k - 1), 2 * (k - 1) * 4 * count


def ring(k, count):
    return k * star(k, count)[0], star(k, count)[1]


ALLREDUCE = {"star": star, "ring": ring}
ALGORITHMS = pytest.mark.parametrize("algorithm", ALLREDUCE)


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


def split_conv(conv, devices, gather_input, algorithm):
    return lp.ChannelParallelConv2d(conv, devices, gather_input, algorithm)


def block(devices, algorithm):
    attention = nn.MultiheadAttention(12, 4, batch_first=True)
    return nn.Sequential(
        lp.Residual(
            nn.Sequential(
                lp.Replicated(nn.LayerNorm(12), devices),
                lp.HeadParallelAttention(attention, devices, False, algorithm),
            )
        ),
        lp.Residual(
            nn.Sequential(
                lp.Replicated(nn.LayerNorm(12), devices),
                lp.ParallelMLP(
                    nn.Linear(12, 18),
                    nn.GELU(),
                    nn.Linear(18, 12),
                    devices,
                    algorithm,
                ),
            )
        ),
    )


# The layer, the shape of its input, along which dimension that is sharded,
# and (messages, bytes) forward and backward; ``sums`` tells an allreduce's.
LAYERS = {
    "column": (
        lambda d, a: lp.ColumnParallelLinear(nn.Linear(5, 8), d, None, a),
        ((3, 5), None),
        lambda k, sums: (NOTHING, sums(k, 3 * 5)),
    ),
    "row": (
        lambda d, a: lp.RowParallelLinear(nn.Linear(7, 4), d, None, a),
        ((3, 7), 1),
        lambda k, sums: (sums(k, 3 * 4), NOTHING),
    ),
    "mlp": (
        lambda d, a: lp.ParallelMLP(
            nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 4), d, a
        ),
        ((3, 5), None),
        lambda k, sums: (sums(k, 3 * 4), sums(k, 3 * 5)),
    ),
    "transformer block": (
        block,
        ((2, 5, 12), None),
        lambda k, sums: (
            tuple(2 * n for n in sums(k, 2 * 5 * 12)),
            tuple(2 * n for n in sums(k, 2 * 5 * 12)),
        ),
    ),
    "gathered channels": (
        lambda d, a: split_conv(nn.Conv2d(6, 8, 3), d, True, a),
        ((2, 6, 5, 7), 1),
        lambda k, sums: (
            gathering(k, 2 * 6 * 5 * 7),
            gathering(k, 2 * 6 * 5 * 7),
        ),
    ),
    "channels of replicas": (
        lambda d, a: split_conv(nn.Conv2d(6, 8, 3), d, False, a),
        ((2, 6, 5, 7), None),
        lambda k, sums: (NOTHING, sums(k, 2 * 6 * 5 * 7)),
    ),
    "towers": (
        lambda d, a: split_conv(nn.Conv2d(12, 24, 3, groups=12), d, False, a),
        ((2, 12, 5, 7), 1),
        lambda k, sums: (NOTHING, NOTHING),
    ),
    "embedding": (
        lambda d, a: lp.VocabParallelEmbedding(nn.Embedding(11, 3), d, a),
        ((4,), None),
        lambda k, sums: (sums(k, 4 * 3), NOTHING),
    ),
    "layer norm": (
        lambda d, a: lp.Replicated(nn.LayerNorm(5), d),
        ((3, 5), None),
        lambda k, sums: (NOTHING, NOTHING),
    ),
    "joined": (
        lambda d, a: lp.Joined(dim=1),
        ((3, 7), 1),
        lambda k, sums: (gathering(k, 3 * 7), NOTHING),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("k", range(1, 5))
@ALGORITHMS
def test_a_layer_sends_what_the_formula_says(name, k, algorithm):
    make, (shape, dim), formula = LAYERS[name]
    devices = dpkit.devices(k, kind="sim")
    x = torch.randint(11, shape)
    xs = parts(x if name == "embedding" else x.float(), dim, devices)
    layer = make(devices, algorithm)
    forward = sent(layer, xs)
    ys = layer(xs)
    gradients = [torch.ones_like(y) for y in ys]
    backward = sent(torch.autograd.backward, ys, gradients)
    assert (forward, backward) == formula(k, ALLREDUCE[algorithm])


@pytest.mark.parametrize("k", range(1, 5))
@ALGORITHMS
def test_the_loss_sends_three_numbers_for_each_example(k, algorithm):
    devices = dpkit.devices(k, kind="sim")
    shards = parts(torch.randn(6, 11), 1, devices)
    targets = parts(torch.randint(11, (6,)), None, devices)
    given = shards, targets, algorithm
    forward = sent(lp.vocab_parallel_cross_entropy, *given)
    losses = lp.vocab_parallel_cross_entropy(*given)
    backward = sent(torch.autograd.backward, losses)
    messages, num_bytes = ALLREDUCE[algorithm](k, 6)
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
    assert messages == ring(k, 12)[0] + k - 1
    assert num_bytes == ring(k, 12)[1] + (k - 1) * 4 * 15
    y = net(x)
    messages, num_bytes = sent(y.backward, y)
    assert messages == ring(k, 15)[0] + k - 1
    assert num_bytes == ring(k, 15)[1] + (k - 1) * 4 * 12


@pytest.mark.parametrize("k", [2, 4])
def test_an_input_that_needs_no_gradient_costs_nothing_backward(k):
    devices = dpkit.devices(k, kind="sim")
    layer = lp.ColumnParallelLinear(nn.Linear(5, 8), devices)
    xs = [torch.ones(3, 5, device=d) for d in devices]
    losses = [y.sum() for y in layer(xs)]
    assert sent(torch.autograd.backward, losses) == NOTHING


TAKE_AN_ALGORITHM = [
    lp.ChannelParallelConv2d,
    lp.ColumnParallelLinear,
    lp.HeadParallelAttention,
    lp.ParallelMLP,
    lp.RowParallelLinear,
    lp.VocabParallelEmbedding,
    lp.allreduce_backward,
    lp.allreduce_forward,
    lp.vocab_parallel_cross_entropy,
    data_parallel.BucketedDataParallel,
    data_parallel.allreduce_gradients,
    dpkit.train,
    dpkit.train_batch,
]


@pytest.mark.parametrize("given", TAKE_AN_ALGORITHM)
def test_if_none_is_named_it_is_a_ring(given):
    assert signature(given).parameters["algorithm"].default == "ring"


@ALGORITHMS
@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_step_of_data_parallelism_sends_each_gradient(k, algorithm):
    devices = dpkit.devices(k, kind="sim")
    params = dpkit.replicate([torch.zeros(5, 3), torch.zeros(7)], devices)
    found = sent(
        lambda: dpkit.train_batch(
            net=lambda X, params: X @ params[0] + params[1].sum(),
            loss=lambda outputs, y: (outputs - y) ** 2,
            X=torch.ones(k, 5), y=torch.ones(k, 3), device_params=params,
            devices=devices, lr=0.1, algorithm=algorithm,
        )
    )  # fmt: skip
    both = [ALLREDUCE[algorithm](k, count) for count in (5 * 3, 7)]
    assert found == tuple(map(sum, zip(*both)))


@ALGORITHMS
@pytest.mark.parametrize("k", [2, 3])
def test_a_bucket_is_reduced_by_the_algorithm_of_the_caller(k, algorithm):
    parallel = data_parallel.BucketedDataParallel(
        nn.Linear(5, 3), dpkit.devices(k, kind="sim"), algorithm=algorithm
    )
    X, y = torch.ones(k, 5), torch.ones(k, 3)
    messages, num_bytes = sent(
        parallel.forward_backward, X, y, nn.functional.mse_loss
    )
    expected = ALLREDUCE[algorithm](k, 5 * 3 + 3)
    # Each other device sends its loss to the first; a bucket has a flag.
    assert messages == expected[0] + k - 1
    flags = 2 * (k - 1) * 4 * 2
    assert num_bytes == expected[1] + flags + 4 * (k - 1)


def test_copies_in_a_pipeline_are_summed_by_a_ring():
    """Three stages that share a parameter; else each sends one on and back."""
    shared = nn.Linear(4, 4, bias=False)
    layers = nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), shared)
    pipeline = dpkit.Pipeline(
        dpkit.split_layers(layers, 3, sizes=[2, 2, 1]),
        dpkit.devices(3, kind="sim"), "gpipe", 1,
    )  # fmt: skip
    X = torch.ones(5, 4)
    found = sent(pipeline.forward_backward, X, X, nn.functional.mse_loss)
    expected = ALLREDUCE["ring"](3, 4 * 4)
    assert found == (expected[0] + 4, expected[1] + 4 * 4 * 5 * 4)


def test_nodes_stand_in_the_name_of_an_algorithm():
    """By a ring in each of 2 nodes of 2, then between equals of both."""
    devices = dpkit.devices(4, kind="sim")
    x = [torch.arange(8.0, device=d) for d in devices]
    messages, _ = sent(lp.allreduce_forward, x, "hierarchical:2")
    plan = allreduce_plan("hierarchical", 4, ranks_per_node=2)
    assert messages == len(plan.messages)
    ys = lp.allreduce_forward(x, "hierarchical:2")
    assert all(torch.equal(y.cpu(), 4 * torch.arange(8.0)) for y in ys)
