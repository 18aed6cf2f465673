"""What cannot be split is refused, with the numbers."""

from functools import partial

import pytest
import torch
from torch import nn

import dpkit
from dpkit import layer_partition as lp


def on_replicas(conv, devices):
    return lp.ChannelParallelConv2d(conv, devices, gather_input=False)


REFUSED = [
    (
        lambda d: lp.ColumnParallelLinear(nn.Linear(9, 2), d),
        r"too few outputs .* \(outputs: 2, devices: 3\)",
    ),
    (
        lambda d: lp.RowParallelLinear(nn.Linear(2, 9), d),
        r"too few inputs .* \(inputs: 2, devices: 3\)",
    ),
    (
        lambda d: lp.ColumnParallelLinear(nn.Linear(9, 8), d, [4, 4, 1]),
        r"sizes: \[4, 4, 1\], outputs: 8, devices: 3",
    ),
    (
        lambda d: lp.ColumnParallelLinear(nn.Linear(9, 8), d, [4, 4]),
        r"sizes: \[4, 4\], outputs: 8, devices: 3",
    ),
    (
        lambda d: lp.RowParallelLinear(nn.Linear(8, 9), d, [9, 0, -1]),
        r"sizes: \[9, 0, -1\], inputs: 8, devices: 3",
    ),
    (
        lambda d: lp.ColumnParallelLinear(nn.Linear(9, 8), []),
        r"no devices .* \(devices: 0\)",
    ),
    (
        lambda d: lp.ParallelMLP(
            nn.Linear(2, 7), nn.ReLU(), nn.Linear(6, 2), d
        ),
        r"outputs: 7, inputs: 6",
    ),
    (
        lambda d: lp.ChannelParallelConv2d(nn.Conv2d(9, 2, 3), d),
        r"too few output channels .* \(output channels: 2, devices: 3\)",
    ),
    (
        lambda d: on_replicas(nn.Conv2d(4, 8, 3, groups=4), d),
        r"groups: 4, devices: 3, gather_input: False",
    ),
    (
        lambda d: lp.ChannelParallelConv2d(nn.Conv2d(3, 6, 3, groups=3), d),
        r"groups: 3, devices: 3, gather_input: True",
    ),
    (
        lambda d: lp.HeadParallelAttention(
            nn.MultiheadAttention(8, 2, batch_first=True), d
        ),
        r"too few heads .* \(heads: 2, devices: 3\)",
    ),
    (
        lambda d: lp.HeadParallelAttention(nn.MultiheadAttention(8, 4), d),
        r"batch_first: False, possible: True",
    ),
    (
        lambda d: lp.HeadParallelAttention(
            nn.MultiheadAttention(8, 4, kdim=5, batch_first=True), d
        ),
        r"kdim: 5, possible: 8",
    ),
    (
        lambda d: lp.HeadParallelAttention(
            nn.MultiheadAttention(8, 4, dropout=0.1, batch_first=True), d
        ),
        r"dropout: 0.1, possible: 0.0",
    ),
    (
        lambda d: lp.HeadParallelAttention(
            nn.MultiheadAttention(8, 4, add_bias_kv=True, batch_first=True), d
        ),
        r"bias_k: given, possible: None",
    ),
    (
        lambda d: lp.HeadParallelAttention(
            nn.MultiheadAttention(8, 4, add_zero_attn=True, batch_first=True),
            d,
        ),
        r"add_zero_attn: True, possible: False",
    ),
    (
        lambda d: lp.Replicated(nn.Sequential(nn.ReLU(), nn.Dropout(0.2)), d),
        r"another mask on each device \(Dropout, p: 0.2\)",
    ),
    (
        lambda d: lp.VocabParallelEmbedding(nn.Embedding(2, 9), d),
        r"too few words .* \(words: 2, devices: 3\)",
    ),
    (
        lambda d: lp.VocabParallelEmbedding(
            nn.Embedding(7, 9, padding_idx=0), d
        ),
        r"padding_idx: 0, possible: None",
    ),
    (
        lambda d: lp.VocabParallelEmbedding(
            nn.Embedding(7, 9, sparse=True), d
        ),
        r"sparse: True, possible: False",
    ),
]


@pytest.mark.parametrize(("act", "words"), REFUSED)
def test_refused_with_the_numbers(get_devices, act, words):
    devices = get_devices(3)
    with pytest.raises(ValueError, match=words):
        act(devices)


def test_dropout_that_drops_nothing_is_welcome(get_devices):
    lp.Replicated(nn.Dropout(0.0), get_devices(2))


@pytest.mark.parametrize(
    ("activation", "why"),
    [
        (nn.PReLU(), r"with parameters .*\(PReLU\)"),
        (nn.Softmax(dim=-1), r"by itself \(Softmax\)"),
        (nn.LogSoftmax(dim=-1), r"by itself \(LogSoftmax\)"),
        (nn.RReLU(), r"by itself \(RReLU\)"),
        (nn.LayerNorm(7), r"with parameters"),
        (nn.BatchNorm1d(7, affine=False), r"by itself \(BatchNorm1d\)"),
    ],
)
def test_activations_that_cannot_be_split(activation, why):
    layers = nn.Linear(5, 7), activation, nn.Linear(7, 4)
    with pytest.raises(ValueError, match=why):
        lp.ParallelMLP(*layers, dpkit.devices(2, "sim"))


@pytest.mark.parametrize(
    "activation", [nn.ReLU(), nn.GELU(), nn.Tanh(), nn.SiLU(), nn.Identity()]
)
def test_activations_that_can(activation):
    layers = nn.Linear(5, 7), activation, nn.Linear(7, 4)
    assert len(lp.ParallelMLP(*layers, dpkit.devices(2, "sim"))) == 3


THREE = dpkit.devices(3, "cpu")
TAKE_ONE_EACH = {
    "columns": lp.ColumnParallelLinear(nn.Linear(5, 7), THREE),
    "rows": lp.RowParallelLinear(nn.Linear(7, 5), THREE),
    "channels": lp.ChannelParallelConv2d(nn.Conv2d(5, 7, 1), THREE),
    "channels of replicas": on_replicas(nn.Conv2d(5, 7, 1), THREE),
    "groups": on_replicas(nn.Conv2d(6, 6, 1, groups=6), THREE),
    "heads": lp.HeadParallelAttention(
        nn.MultiheadAttention(6, 3, batch_first=True), THREE
    ),
    "words": lp.VocabParallelEmbedding(nn.Embedding(7, 5), THREE),
    "two layers": lp.ParallelMLP(
        nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 5), THREE
    ),
    "copies": lp.Replicated(nn.ReLU(), THREE),
    "branch": lp.Residual(lp.Replicated(nn.ReLU(), THREE)),
    "loss": lambda targets: lp.vocab_parallel_cross_entropy(
        [torch.zeros(2, 5)] * 3, targets
    ),
}


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("act", TAKE_ONE_EACH.values(), ids=TAKE_ONE_EACH)
def test_each_device_needs_one_tensor(act, count):
    told = rf"each device needs one tensor \(tensors: {count}, devices: 3\)"
    with pytest.raises(ValueError, match=told):
        act([torch.ones(2, 5, 1, 1)] * count)


@pytest.mark.parametrize("act", TAKE_ONE_EACH.values(), ids=TAKE_ONE_EACH)
def test_a_tensor_where_a_list_belongs(act):
    with pytest.raises(TypeError, match=r"\(shape: \(3, 5\)\)"):
        act(torch.ones(3, 5))


def test_scores_of_one_device_where_a_list_belongs():
    targets = [torch.ones(3, dtype=torch.long)] * 3
    with pytest.raises(TypeError, match=r"\(shape: \(3, 5\)\)"):
        lp.vocab_parallel_cross_entropy(torch.ones(3, 5), targets)


@pytest.mark.parametrize(
    "act",
    [
        *(lp.allreduce_backward, lp.allreduce_forward, lp.take_one),
        partial(lp.allgather_forward, dim=0),
        partial(lp.reduce_scatter_backward, dim=0),
    ],
)
def test_without_tensors_there_is_nothing_to_send(act):
    with pytest.raises(ValueError, match=r"no tensors .*\(tensors: 0\)"):
        act([])


@pytest.mark.parametrize(
    ("layer", "of_another_kind"),
    [
        (lp.ColumnParallelLinear, nn.Conv2d(4, 4, 3)),
        (lp.RowParallelLinear, nn.Bilinear(4, 4, 4)),
        (lp.ChannelParallelConv2d, nn.ConvTranspose2d(4, 6, 3)),
        (lp.ChannelParallelConv2d, nn.Conv1d(4, 4, 3)),
        (lp.VocabParallelEmbedding, nn.EmbeddingBag(8, 4)),
        (lp.HeadParallelAttention, nn.Linear(4, 4)),
    ],
)
def test_layers_of_another_kind(layer, of_another_kind):
    name = type(of_another_kind).__name__
    with pytest.raises(TypeError, match=rf"of the kind .* {name}\)"):
        layer(of_another_kind, dpkit.devices(2, "sim"))
