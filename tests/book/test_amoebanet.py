"""Tests of scripts/recorders/amoebanet.py."""

import copy
import json

import pytest
import torch
from recorders.amoebanet import (
    Cell,
    HalfSize,
    amoebanet_d,
)
from torch import nn
from torch.nn import functional as F

import dpkit
from tests.kit.test_pipeline_of_tuples import assert_one_device
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
PUBLISHED = json.loads((DATA / "torchgpipe_amoebanet.json").read_text())


def short(count):
    if count < 1e9:
        return f"{count / 1e6:.1f}M"
    return f"{count / 1e9:.2f}B"


@pytest.mark.parametrize(
    "row",
    PUBLISHED["parameters"],
    ids=lambda row: f"{row['num_layers']}, {row['num_filters']}",
)
def test_it_has_as_many_parameters_as_were_published(row):
    with torch.device("meta"):
        net = amoebanet_d(row["num_layers"], row["num_filters"])
    count = sum(p.numel() for p in net.parameters())
    assert short(count) == row["parameters"]


def test_it_has_as_many_layers_as_were_balanced():
    with torch.device("meta"):
        net = amoebanet_d(PUBLISHED["num_layers"], PUBLISHED["num_filters"])
    assert {sum(run["balance"]) for run in PUBLISHED["runs"]} == {len(net)}


def test_cells_halve_images_and_pass_pairs():
    net = amoebanet_d(num_layers=6, num_filters=64, num_classes=7)
    states = net[0](torch.zeros(2, 3, 96, 64))
    assert states.shape == (2, 16, 48, 32)
    found = []
    for cell in net[1:-1]:
        given = states[0] if isinstance(states, tuple) else states
        states = cell(states)
        assert states[1] is given
        found.append(tuple(states[0].shape[1:]))
    assert net[-1](states).shape == (2, 7)
    assert found == [
        (96, 24, 16),
        (192, 12, 8),
        *[(256, 12, 8)] * 2,
        (384, 6, 4),
        *[(512, 6, 4)] * 2,
        (768, 3, 2),
        *[(1024, 3, 2)] * 2,
    ]


def average(X, stride=1):
    """Average over 3×3, of what lies inside the image."""
    ones = torch.ones_like(X)
    sums = [F.pad(x, (1, 1, 1, 1)).unfold(2, 3, stride).unfold(3, 3, stride)
            for x in (X, ones)]  # fmt: skip
    return sums[0].sum(dim=(4, 5)) / sums[1].sum(dim=(4, 5))


def maximum(X):
    return X.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(4, 5))


def states(newer, older, size=6):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, c, size, size, generator=generator, dtype=torch.float64)
        for c in (newer, older)
    ]


def convolutions(cell):
    """The operations of a cell that have parameters, in order."""
    return [m for m in cell.operations if list(m.parameters())]


def test_a_normal_cell_is_the_one_published():
    cell = Cell(12, 20, 8, reduces=False, older_is_larger=False).double()
    given = states(12, 20)
    one, seven_a, one_b, seven_b, one_c = convolutions(cell)
    h0, h1 = cell.newer(given[0]), cell.older(given[1])
    s2 = one(h1) + average(h1)
    s3 = h1 + seven_a(h0)
    s4 = one_b(h0) + seven_b(h0)
    s5 = average(s2) + s2
    s6 = average(h1) + one_c(s5)
    made, newer = cell(tuple(given))
    assert newer is given[0]
    torch.testing.assert_close(made, torch.cat([h0, s3, s4, s6], dim=1))


def test_a_reduction_cell_is_the_one_published():
    cell = Cell(12, 20, 8, reduces=True, older_is_larger=False).double()
    given = states(12, 20)
    three, seven, one = convolutions(cell)
    h0, h1 = cell.newer(given[0]), cell.older(given[1])
    s2 = maximum(h0) + average(h0, 2)
    s3 = s2 + three(h1)
    s4 = seven(s2) + average(s2)
    s5 = s3 + maximum(h1)
    s6 = average(s2) + one(s3)
    made, newer = cell(tuple(given))
    assert newer is given[0]
    torch.testing.assert_close(made, torch.cat([s4, s5, s6], dim=1))


def test_a_first_cell_takes_one_tensor_for_both():
    cell = Cell(12, 12, 8, reduces=False, older_is_larger=False)
    X = torch.randn(2, 12, 6, 6)
    torch.testing.assert_close(cell(X)[0], cell((X, X))[0])


def test_convolutions_are_narrow_and_as_published():
    normal = Cell(12, 20, 8, reduces=False, older_is_larger=False)
    sizes = [
        tuple(m.weight.shape)
        for m in normal.operations[3].modules()
        if isinstance(m, nn.Conv2d)
    ]
    assert sizes == [(2, 8, 1, 1), (2, 2, 1, 7), (2, 2, 7, 1), (8, 2, 1, 1)]


def test_half_size_takes_even_and_odd_pixels():
    X = torch.randn(2, 5, 6, 8, dtype=torch.float64)
    layer = HalfSize(5, 7).double()
    here, there = (c.weight[:, :, 0, 0] for c in layer.convolutions)
    grown = X.relu()
    parts = [
        torch.einsum("oc,bchw->bohw", here, grown[:, :, ::2, ::2]),
        torch.einsum("oc,bchw->bohw", there, grown[:, :, 1::2, 1::2]),
    ]
    wanted = layer.norm(torch.cat(parts, dim=1))
    torch.testing.assert_close(layer(X), wanted)


def test_every_parameter_gets_a_gradient():
    net = amoebanet_d(num_layers=3, num_filters=32, num_classes=5)
    net(torch.randn(2, 3, 64, 64)).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(("layers", "filters"), [(4, 64), (6, 40)])
def test_numbers_that_do_not_fit_are_refused(layers, filters):
    match = rf"num_layers: {layers}, num_filters: {filters}"
    with pytest.raises(ValueError, match=match):
        amoebanet_d(layers, filters)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_a_published_network_is_cut_between_its_cells(schedule):
    """AmoebaNet-D, small, in four stages; pairs of images pass."""
    torch.manual_seed(0)
    # Batch norm in evaluation mode, as micro-batches have statistics apart.
    model = amoebanet_d(num_layers=3, num_filters=16, num_classes=4)
    model = model.double().eval()
    reference = copy.deepcopy(model)
    stages = dpkit.split_layers(model, 4, sizes=[2, 3, 2, 2])
    pipeline = dpkit.Pipeline(stages, dpkit.devices(4, "sim"), schedule, 2)
    X, y = torch.randn(3, 3, 64, 64).double(), torch.randn(3, 4).double()
    assert_one_device(pipeline, reference, X, y)
