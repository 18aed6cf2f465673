"""Published steps of large transformers, and the parts they are put of."""

import json
from dataclasses import replace
from statistics import mean

import pytest
import torch
from recorders.trust import (
    korthikanti,
    transformer,
    transformer_ends,
    transformer_layer,
)
from recorders.trust.korthikanti import (
    Model,
    hop_seconds,
    model_of,
    optimizer_seconds,
    replicas_seconds,
    step_seconds,
)
from recorders.trust.transformer import Passes, layer_seconds, simulated
from recorders.trust.transformer_layer import (
    SEQUENCE,
    PlainAttention,
    Shape,
    replicas_layer,
    rows_layer,
    split_parts,
)
from torch import nn

import dpkit
from dpbook.limits.comparisons import read
from dpkit.layer_partition import HeadParallelAttention
from dpkit.schedules.bubble import makespan
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
RECORD = json.loads((DATA / "korthikanti2022.json").read_text())
SMALL = Shape(heads=4, hidden=256, micro_batch=3, num_devices=2)
MODELS = {k: model_of(v) for k, v in RECORD["models"].items()}


@pytest.fixture(scope="module")
def rows():
    """The record of comparisons, which test_comparisons computes again."""
    return read(DATA / "comparisons.json").of("transformers").rows


# -- the comparisons


def test_steps_are_within_five_percent_on_average(rows):
    steps = [row for row in rows if row.subject.startswith("a step of")]
    for name in ("full recomputation", "selective and sequence parallel"):
        found = [abs(r.factor - 1) for r in steps if r.configuration == name]
        assert len(found) == len(RECORD["models"]) == 4
        assert mean(found) <= (0.05 if name.startswith("full") else 0.08)


def test_layers_are_within_eight_percent_on_average(rows):
    found = [
        abs(r.factor - 1) for r in rows if r.subject.startswith("a layer of")
    ]
    assert len(found) == 10
    assert mean(found) <= 0.08


def test_nothing_was_fitted_to_them(rows):
    assert {row.kind for row in rows} == {"unseen"}


def test_a_star_in_the_layers_would_be_seen(monkeypatch):
    """The bounds above are no use if they hold for any algorithm."""
    for module in (transformer_layer, transformer_ends):
        monkeypatch.setattr(module, "LIBRARY", "star")
    measured = RECORD["models"]["22B"]["full_seconds"]
    assert step_seconds(MODELS["22B"]) > 1.4 * measured


@pytest.mark.parametrize("name", ["first_seconds", "last_seconds"])
def test_the_ends_use_the_algorithm_too(monkeypatch, name):
    seconds = getattr(transformer_ends, name)
    library = seconds(MODELS["22B"].shape, False)
    monkeypatch.setattr(transformer_ends, "LIBRARY", "star")
    star = seconds(MODELS["22B"].shape, False)
    assert sum(star) > 1.2 * sum(library)


def test_fused_attention_would_be_faster():
    shape = MODELS["22B"].shape
    plain = layer_seconds(shape, "full")
    fused = layer_seconds(shape, "full", fused=True)
    assert fused.forward < plain.forward
    assert fused.backward < plain.backward


# -- the layer


def test_attention_by_kernels_gives_what_fused_attention_gives(monkeypatch):
    monkeypatch.setattr(transformer_layer, "DROPOUT", 0.0)
    monkeypatch.setattr(transformer_layer, "LIBRARY", "ring")
    monkeypatch.setattr(transformer_layer, "AS_FUSED_SOFTMAX", torch.softmax)
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(12, 3, batch_first=True)
    devices = dpkit.devices(2, kind="sim")
    xs = dpkit.replicate([torch.randn(2, 5, 12)], devices)
    xs = [x for (x,) in xs]
    fused = HeadParallelAttention(attention, devices)
    for selective in (False, True):
        plain = PlainAttention(attention, devices, selective)
        for y, expected in zip(plain(xs), fused(xs)):
            torch.testing.assert_close(y.cpu(), expected.cpu())


def test_a_layer_cut_by_rows_gives_what_the_other_gives(monkeypatch):
    """The same parts, the same numbers: forward, and the gradients."""
    for name, value in (("DROPOUT", 0.0), ("LIBRARY", "ring")):
        monkeypatch.setattr(transformer_layer, name, value)
    monkeypatch.setattr(transformer_layer, "DTYPE", torch.float64)
    shape = Shape(heads=4, hidden=8, micro_batch=2, num_devices=2)
    devices = dpkit.devices(2, kind="sim")
    torch.manual_seed(0)
    parts = split_parts(shape, devices)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    whole = [x.to(d).requires_grad_() for d in devices]
    halves = x.flatten(0, 1).split(6)
    rows = [h.to(d).requires_grad_() for h, d in zip(halves, devices)]
    ys = replicas_layer(shape, devices, *parts)(whole)
    zs = rows_layer(shape, devices, *parts)(rows)
    joined = torch.cat([z.cpu() for z in zs])
    torch.testing.assert_close(joined, ys[0].cpu().flatten(0, 1))
    weights = torch.arange(1.0, 97.0, dtype=torch.float64).view(12, 8)
    torch.autograd.backward(ys, [weights.view(2, 6, 8).to(d) for d in devices])
    torch.autograd.backward(
        zs, [w.to(d) for w, d in zip(weights.split(6), devices)]
    )
    found = torch.cat([r.grad.cpu() for r in rows])
    torch.testing.assert_close(found, whole[1].grad.cpu().flatten(0, 1))


def test_cutting_by_rows_saves_what_replicas_do_again():
    shape = MODELS["175B"].shape
    none, rows = (layer_seconds(shape, by_rows=b) for b in (False, True))
    assert rows.forward < none.forward
    assert rows.backward < none.backward


def test_a_layer_does_the_arithmetic_of_the_paper():
    """24 b s h² (1 + s / 6h) forward, divided by the devices."""
    b, h, s = SMALL.micro_batch, SMALL.hidden, SEQUENCE
    with simulated(SMALL) as devices:
        layer = replicas_layer(SMALL, devices, *split_parts(SMALL, devices))
        size = b, s, h
        xs = [
            torch.empty(size, dtype=torch.float16, device=d) for d in devices
        ]
        with dpkit.sim.trace() as timeline:
            layer(xs)
        del layer, xs
    spans = [span for span in timeline.spans if span.device == "sim:1"]
    flops = (24 * b * s * h**2 + 4 * b * s**2 * h) // SMALL.num_devices
    assert sum(span.flops for span in spans) == flops
    kernels = [span.name for span in spans if span.kind == "compute"]
    assert kernels.count("native_dropout") == 3
    assert kernels.count("_log_softmax") == 1
    assert kernels.count("native_layer_norm") == 2


def test_full_recomputation_is_another_forward_in_backward():
    none, full = (layer_seconds(SMALL, r) for r in ("none", "full"))
    assert full.forward == pytest.approx(none.forward)
    again = none.forward + none.backward
    assert full.backward == pytest.approx(again, rel=0.03)


def test_recomputation_does_all_again():
    """Two products of attention forward, again, and four in backward."""
    with simulated(SMALL) as devices:
        heads, mlp = split_parts(SMALL, devices, recompute="selective")
        layer = replicas_layer(SMALL, devices, heads, mlp)
        size = SMALL.micro_batch, SEQUENCE, SMALL.hidden
        xs = [
            torch.empty(size, dtype=torch.float16, device=d) for d in devices
        ]
        with dpkit.sim.trace() as timeline:
            ys = layer(xs)
            torch.autograd.backward(ys, [torch.empty_like(y) for y in ys])
        del layer, heads, mlp, xs, ys
    names = [span.name for span in timeline.spans if span.device == "sim:0"]
    assert names.count("bmm") == 2 + 2 + 4


def test_selective_recomputation_is_between():
    by_way = {
        r: layer_seconds(SMALL, r).backward for r in transformer.RECOMPUTE
    }
    assert by_way["none"] < by_way["selective"] < by_way["full"]


def test_accumulating_moves_each_weight_three_times():
    """It reads a gradient and its sum, and writes the sum: 6 bytes."""
    shape = Shape(heads=8, hidden=4096, micro_batch=1, num_devices=2)
    first, later = (layer_seconds(shape, accumulates=a) for a in (False, True))
    assert later.forward == pytest.approx(first.forward)
    weights = 12 * shape.hidden**2 / shape.num_devices
    rate = 2.039e12 * 0.84
    added = later.backward - first.backward
    # Besides, each of the 12 kernels, one for a parameter, takes some 3 µs.
    assert 0 < added - 6 * weights / rate < 50e-6


def test_an_unknown_recomputation_is_refused():
    with pytest.raises(ValueError, match=r"unknown recompute .*'some'"):
        layer_seconds(SMALL, "some")


# -- the step


def test_a_step_follows_its_schedule(monkeypatch):
    """What the closed form of the schedule says, for made-up seconds."""
    made_up = {
        "layer_seconds": lambda *_: Passes(1.0, 3.0),
        "first_seconds": lambda *_: Passes(0.0, 0.0),
        "last_seconds": lambda *_: Passes(0.0, 0.0),
        "hop_seconds": lambda *_, gathers: 0.5 if gathers else 0.25,
        "optimizer_seconds": lambda _: 100.0,
    }
    for name, function in made_up.items():
        monkeypatch.setattr(korthikanti, name, function)
    model = Model(8, 64, 12, 2, 2, 3, batch=8, micro_batch=2)
    # A device has 3 chunks of 2 layers: 3 · (2 · 1 + 0.5) forward.
    expected = makespan(
        "interleaved", 2, 4, forward=7.5, backward=19.5, chunks=3
    )
    assert step_seconds(model) == expected + 100
    # And without interleaving one chunk of 6.
    expected = makespan("1f1b", 2, 4, forward=6.5, backward=18.5)
    assert step_seconds(replace(model, interleave=1)) == expected + 100
    # Where rows are cut, nothing is gathered after a hop.
    expected = makespan("1f1b", 2, 4, forward=6.25, backward=18.25)
    whole = replace(model, interleave=1)
    assert step_seconds(whole, by_rows=True) == expected + 100


def test_the_ends_are_at_the_ends(monkeypatch):
    monkeypatch.setattr(korthikanti, "layer_seconds", lambda *_: Passes(1, 1))
    monkeypatch.setattr(korthikanti, "hop_seconds", lambda *_, **__: 0)
    monkeypatch.setattr(korthikanti, "optimizer_seconds", lambda _: 0)
    first, last = Passes(10, 20), Passes(300, 400)
    monkeypatch.setattr(korthikanti, "first_seconds", lambda *_: first)
    monkeypatch.setattr(korthikanti, "last_seconds", lambda *_: last)
    model = Model(8, 64, 3, 2, 3, 1, batch=1, micro_batch=1)
    assert step_seconds(model) == sum(first) + sum(last) + 6


def test_a_hop_sends_a_part_and_gathers():
    model = MODELS["175B"]
    part = 2 * 2048 * 12288 / 8
    sent = part / 25e9
    assert sent < hop_seconds(model, gathers=False) < 1.1 * sent
    whole = 7 / 8 * 8 * part / 300e9
    gathering = hop_seconds(model) - hop_seconds(model, gathers=False)
    assert whole < gathering < 2 * whole
    assert hop_seconds(replace(model, pipeline=1)) == 0


def test_the_optimizer_moves_54_bytes_a_weight():
    model = MODELS["22B"]
    weights = (12 * 48 * 6144**2 + 51200 * 6144) / 8
    assert model.weights == weights == pytest.approx(22e9 / 8, rel=0.02)
    expected = 54 * weights / (2.039e12 * 0.84)
    assert optimizer_seconds(model) == pytest.approx(expected, rel=1e-3)


def test_replicas_send_their_gradients_twice():
    model = MODELS["530B"]
    moved = 2 * 7 / 8 * 2 * model.weights
    assert 0.6 < moved / 25e9 / replicas_seconds(model, 8) < 1


def test_loss_and_embedding_follow_the_micro_batch():
    for seconds in (
        transformer_ends.first_seconds,
        transformer_ends.last_seconds,
    ):
        once = seconds(SMALL, False)
        twice = seconds(replace(SMALL, micro_batch=6), False)
        assert once.forward < twice.forward < 2 * once.forward + 1e-3
        assert seconds(SMALL, True).backward > once.backward
