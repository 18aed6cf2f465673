"""A transformer's costs against its papers, and against what it is made of."""

import pytest
from torch import nn

from dpbook.formulas.transformer import (
    GATHERED,
    RECOMPUTE,
    Transformer,
)
from dpbook.planner.networks import NETWORKS

GPT = Transformer(
    layers=48,
    hidden=6144,
    heads=64,
    vocabulary=51_200,
    sequence=2048,
    fused=False,
)
PUBLISHED = {
    "7B": 6.74e9,
    "70B": 70.6e9,
    "405B": 405.9e9,
    "22B of 2022": 22e9,
    "175B of 2022": 175e9,
    "530B of 2022": 530e9,
    "1T of 2022": 1008e9,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_that_were_published(name):
    assert NETWORKS[name].parameters == pytest.approx(
        PUBLISHED[name], rel=0.01
    )


def test_a_layer_has_the_weights_of_torch():
    """Without biases and norms: 2h² + 2hg for attention, 2hf for the MLP."""
    layer = nn.TransformerEncoderLayer(8, 2, 24, bias=False, device="meta")
    weights = [p for p in layer.parameters() if p.dim() == 2]
    model = Transformer(
        layers=1, hidden=8, heads=2, vocabulary=10, sequence=5, feed_forward=24
    )
    assert sum(p.numel() for p in weights) == model.layer_parameters


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("b", [1, 4])
def test_kept_bytes_are_those_of_the_paper(b, t):
    s, h, a = GPT.sequence, GPT.hidden, GPT.heads
    unit = s * b * h

    def kept(recompute, rows):
        return (
            GPT.kept_bytes(
                b, tensor=t, recompute=recompute, sequence_parallel=rows
            )
            / unit
        )

    assert kept("none", False) == pytest.approx(
        10 + 24 / t + 5 * a * s / (h * t)
    )
    assert kept("none", True) == pytest.approx((34 + 5 * a * s / h) / t)
    assert kept("selective", True) == pytest.approx(34 / t)
    assert kept("full", False) == 2


def test_fused_attention_keeps_no_weights():
    fused = Transformer(
        layers=48, hidden=6144, heads=64, vocabulary=51_200, sequence=2048
    )
    assert fused.kept_bytes(1, recompute="none") == GPT.kept_bytes(1)


def test_a_shared_sequence_is_kept_in_parts():
    for recompute in RECOMPUTE:
        one, four = (
            GPT.kept_bytes(1, tensor=2, recompute=recompute, context=c)
            for c in (1, 4)
        )
        assert four == one / 4


def test_gathered_inputs_are_kept_whole():
    """The two of a layer, 2h each, and keys and values, 2g each."""
    few = Transformer(
        layers=2, hidden=64, heads=8, vocabulary=100, sequence=16, key_heads=2
    )
    t, c, tokens = 2, 4, 3 * 16

    def kept(gathered, **more):
        settings = {"recompute": "none"} | more
        return few.kept_bytes(3, tensor=t, gathered=gathered, **settings)

    inputs = 2 * 2 * tokens * 64 * (1 - 1 / t)
    assert kept("kept") - kept("again") == inputs
    whole = 2 * 2 * tokens * 16 / t
    shared = kept("kept", context=c) - kept("again", context=c)
    assert shared == inputs / c + whole * (1 - 1 / c)
    alone = {"recompute": "full"}
    assert kept("kept", **alone) == kept("again", **alone)
    rows = {"sequence_parallel": False}
    assert kept("kept", **rows) == kept("again", **rows)


def test_two_inputs_of_a_block_of_the_mesh_are_470_megabytes():
    """The worked case of the module: seven eighths of 268 MB, twice."""
    llama = Transformer(
        layers=4,
        hidden=4096,
        heads=32,
        vocabulary=32_000,
        sequence=2048,
        key_heads=8,
        gated=True,
    )
    again, kept = (
        llama.kept_bytes(16, tensor=8, recompute="none", gathered=gathered)
        for gathered in GATHERED
    )
    assert round((kept - again) / 1e6) == 470


def test_an_unknown_word_for_what_is_gathered_is_refused():
    with pytest.raises(ValueError, match=r"unknown gathered .*'lost'"):
        GPT.kept_bytes(1, gathered="lost")


def test_fewer_keys_and_a_gate_change_what_is_kept():
    plain, few, gate, dry = (
        Transformer(
            layers=2,
            hidden=64,
            heads=8,
            vocabulary=100,
            sequence=10,
            **changes,
        ).kept_bytes(1, tensor=1, recompute="none")
        for changes in (
            {},
            {"key_heads": 2},
            {"gated": True},
            {"dropout": False},
        )
    )
    assert plain - few == 10 * 4 * (64 - 16)
    assert gate - plain == 10 * 2 * 256
    assert plain - dry == 10 * 2 * 64


def test_an_unknown_recomputation_is_refused():
    with pytest.raises(ValueError, match=r"unknown recompute .*'some'"):
        GPT.kept_bytes(1, recompute="some")
