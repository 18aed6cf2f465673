"""BERT-large on one GPU, and one of its layers, published and simulated."""

import json

import pytest
import torch
from recorders.trust import bert
from recorders.trust.bert import (
    HEADS,
    HIDDEN,
    Bert,
    Layer,
    Optimizer,
    layer_sequences_per_second,
    sequences_per_second,
)
from recorders.trust.small_transformers import (
    GPUS,
    LAYERS,
    STEPS,
    layer_flops,
)
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dpbook.limits.comparisons import mean_factor, read
from tests.repository import ROOT

DATA = ROOT / "book/_data"
STEP_RECORD, LAYER_RECORD = (
    json.loads((DATA / f"{name}.json").read_text())
    for name in ("bert_nvidia", "bert_layer_v100")
)
RECORD = read(DATA / "comparisons.json")
CASE = {
    "task": "pre-training",
    "rows": 16,
    "length": 128,
    "accumulated": 4096,
    "precision": "mixed",
    "fused": True,
    "accelerator": "v100",
}


def rate(**changes):
    return sequences_per_second(**CASE | changes)


# -- the network


def test_a_layer_is_that_of_pytorch(monkeypatch):
    """Without dropout; PyTorch has the three projections in one matrix."""
    monkeypatch.setattr(bert, "dropped", lambda x: x)
    layer = Layer().double()
    theirs = nn.TransformerEncoderLayer(
        HIDDEN, HEADS, 4 * HIDDEN, 0.0, "gelu", batch_first=True
    ).double()
    project = layer.attention.project
    pairs = {
        theirs.self_attn.in_proj_weight: torch.cat(
            [p.weight for p in project]
        ),
        theirs.self_attn.in_proj_bias: torch.cat([p.bias for p in project]),
    }
    modules = [
        (theirs.self_attn.out_proj, layer.attention.output),
        (theirs.linear1, layer.first),
        (theirs.linear2, layer.second),
        (theirs.norm1, layer.norms[0]),
        (theirs.norm2, layer.norms[1]),
    ]
    for module, mine in modules:
        pairs |= {module.weight: mine.weight, module.bias: mine.bias}
    with torch.no_grad():
        for parameter, value in pairs.items():
            parameter.copy_(value)
        x = torch.randn(2, 5, HIDDEN, dtype=torch.float64)
        torch.testing.assert_close(layer(x), theirs(x))
        # What the mask hides is as if it were not there.
        hides = torch.tensor([0.0] * 4 + [-1e9]).double()
        torch.testing.assert_close(layer(x, hides)[:, :4], layer(x[:, :4]))


def test_it_has_336_million_weights():
    with torch.device("meta"):
        net = Bert("pre-training")
    count = sum(p.numel() for p in net.parameters())
    assert round(count / 1e6) == 336


@pytest.mark.parametrize("length", [128, 512])
def test_operations_of_a_layer_are_those_that_its_source_counts(length):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        Layer()(torch.empty(3, length, HIDDEN))
    assert counter.get_total_flops() == 3 * layer_flops(length)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_optimizer_keeps_its_weights_in_float32(dtype):
    torch.manual_seed(0)
    net = nn.Linear(3, 2).to(dtype)
    theirs = nn.Linear(3, 2)
    theirs.load_state_dict(net.state_dict())
    net(torch.ones(3, dtype=dtype)).sum().backward()
    optimizer = Optimizer(net, fused=False)
    adam = torch.optim.Adam(theirs.parameters())
    for gradient in (10.0, 0.01):  # the first is clipped to a norm of 1
        for ours, p in zip(net.parameters(), theirs.parameters(), strict=True):
            ours.grad = torch.full_like(ours, gradient)
            p.grad = torch.full_like(p, gradient)
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        adam.step()
        optimizer.step()
    for weight, p in zip(optimizer.weights, theirs.parameters(), strict=True):
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight.detach(), p.detach())
    for ours, p in zip(net.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours.detach(), p.detach().to(dtype))


# -- its seconds


def test_fewer_steps_of_the_optimizer_take_less():
    assert rate(accumulated=1) < rate(accumulated=8) < rate()


def test_products_are_rounded_where_the_row_says_so():
    before = torch.backends.cuda.matmul.fp32_precision
    on = {"accelerator": "a100"}
    full, rounded, half = (
        rate(precision=p, **on) for p in ("FP32", "TF32", "mixed")
    )
    assert 2 * full < rounded < half
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_the_precision_is_put_back_after_an_error():
    before = torch.backends.cuda.matmul.fp32_precision
    with pytest.raises(ValueError, match="accelerator"):
        rate(precision="TF32", accelerator="a1000")
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_a_host_limits_a_small_batch():
    """Published: 4 sequences take as long as 16."""
    small, large = (
        [
            layer_sequences_per_second(
                rows, 128, False, accelerator="v100", host=host
            )
            for host in ("eager", "eager-program")
        ]
        for rows in (4, 128)
    )
    assert small[0] > 3 * small[1]
    assert large[0] < 1.01 * large[1]


# -- the rows


def recorded(work):
    """Return the rows of the record; test_comparisons computes them again."""
    return RECORD.of(work).rows


def find(rows, **fields):
    (row,) = (
        row
        for row in rows
        if all(getattr(row, name) == value for name, value in fields.items())
    )
    return row


def test_batches_are_quotients_of_what_the_source_has():
    """It has the sequences of a step, 65,232 of them in one row."""
    for name, rows in STEP_RECORD["rows"].items():
        assert all(row[0] in GPUS for row in rows)
        products = {row[2] * row[3] for row in rows}
        if name == "pre-training, 128 words":
            assert products == {65536, 65232}
        elif name == "pre-training, 512 words":
            assert products == {32768}
        else:
            assert {row[3] for row in rows} == {1}


def test_a_step_is_what_the_record_holds():
    """If not: python scripts/record.py comparisons."""
    row = find(
        recorded(STEPS),
        subject="BERT-large, pre-training, 128 words",
        hardware="V100 16 GB mixed",
    )
    assert row.predicted == pytest.approx(rate(), rel=5e-3)


def test_a_layer_is_what_the_record_holds():
    row = find(
        recorded(LAYERS),
        subject="a layer of BERT-large, 512 words, forward and backward",
        configuration="batch 32",
    )
    found = layer_sequences_per_second(32, 512, True, accelerator="v100")
    assert row.predicted == pytest.approx(found, rel=5e-3)


def test_nothing_of_the_records_is_left_out():
    published = [r[-1] for rows in STEP_RECORD["rows"].values() for r in rows]
    assert [row.measured for row in recorded(STEPS)] == published
    count = 4 * len(LAYER_RECORD["batches"])
    assert len(recorded(LAYERS)) == count == 24


def test_all_steps_are_too_fast():
    steps = recorded(STEPS)
    assert all(row.factor > 1.05 for row in steps)
    assert 1.2 < mean_factor(steps) < 1.4


def test_a_layer_is_predicted_where_it_does_not_wait_for_python():
    layers = recorded(LAYERS)
    small = [
        row
        for row in layers
        if "128 words" in row.subject
        and row.configuration in ("batch 4", "batch 8")
    ]
    others = [row for row in layers if row not in small]
    assert min(row.factor for row in small) > 2
    assert mean_factor(others) < 1.2
