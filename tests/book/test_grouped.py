"""Networks with convolutions in groups, published and simulated."""

import json

import pytest
import torch
from recorders.trust.convolutional import NETWORKS
from recorders.trust.grouped import (
    DEPTHWISE,
    GROUPED,
    WORK,
    cases,
)
from torch import nn

from dpbook.limits.comparisons import mean_factor, read
from tests.repository import ROOT
from tests.weekly import few_of

DATA = ROOT / "book/_data"
PUBLISHED = json.loads((DATA / "grouped_nvidia.json").read_text())
RECORD = read(DATA / "comparisons.json")
CASES = list(cases(PUBLISHED))
# A network of groups of several channels, and one of depthwise convolutions.
FEW = ("resnext101-32x4d", "efficientnet-b0")


def convolutions(network):
    with torch.device("meta"):
        net = NETWORKS[network][0]()
    return [m for m in net.modules() if isinstance(m, nn.Conv2d)]


@pytest.mark.parametrize("network", WORK)
def test_networks_and_sides_are_those_of_the_record(network):
    assert list(PUBLISHED["training"]) == list(WORK)
    assert NETWORKS[network][1] == PUBLISHED["side"][network]


def test_a_network_of_32_groups():
    """ResNeXt-101 has 33 blocks; its first groups have 4 channels."""
    grouped = [c for c in convolutions("resnext101-32x4d") if c.groups > 1]
    assert [c.groups for c in grouped] == [32] * 33
    assert grouped[0].in_channels == 32 * 4


def test_squeeze_and_excitation_is_in_every_block():
    plain, weighed = (
        convolutions(f"{name}resnext101-32x4d") for name in ("", "se-")
    )
    assert len(weighed) == len(plain) + 2 * 33
    narrow = [c for c in weighed if c.out_channels == 16]
    assert len(narrow) == 33


@pytest.mark.parametrize("network", ["efficientnet-b0", "efficientnet-b4"])
def test_depthwise_convolutions_have_a_channel_in_each_group(network):
    grouped = [c for c in convolutions(network) if c.groups > 1]
    assert grouped
    assert all(c.groups == c.in_channels for c in grouped)


def test_nothing_of_the_record_is_left_out():
    published = sorted(case.rates["1"] for case in cases(PUBLISHED))
    assert len(published) == 16
    shares = sorted(
        case.rates["8"] / 8 / case.rates["1"] for case in cases(PUBLISHED)
    )
    found = [row for row in RECORD.rows if row.subject in WORK]
    rates = [row for row in found if row.unit == "images/s"]
    scaling = [row for row in found if row.unit == "of k times one"]
    assert sorted(row.measured for row in rates) == published
    assert sorted(row.measured for row in scaling) == pytest.approx(
        shares, rel=1e-3
    )
    assert {row.work for row in scaling} == {"scaling"}


NAMED = {f"{c.network}, {c.hardware}, {c.precision}": c for c in CASES}
FIRST = [next(name for name in NAMED if name.startswith(few)) for few in FEW]


@pytest.mark.parametrize("name", few_of(NAMED, FIRST))
def test_the_record_of_comparisons_has_this_row(name):
    """If not: python scripts/record.py comparisons."""
    case = NAMED[name]
    (recorded,) = [
        row
        for row in RECORD.rows
        if row.unit == "images/s" and row.measured == case.rates["1"]
    ]
    assert recorded.predicted == pytest.approx(case.simulated(1), rel=5e-3)


def test_groups_of_several_channels_are_predicted():
    """A tenth off on average; with groups of one channel all too fast."""
    grouped, depthwise = (
        [row for row in RECORD.rows if row.work == work]
        for work in (GROUPED, DEPTHWISE)
    )
    assert len(grouped) + len(depthwise) == len(CASES)
    assert mean_factor(grouped) < 1.13
    assert all(row.factor > 1.2 for row in depthwise)
    assert 1.5 < mean_factor(depthwise) < 1.8
