"""What a tree of modules costs: its recorder, its record, its preset."""

import json
from dataclasses import replace
from statistics import median

import pytest
import torch
from recorders.framework import WIDTH, bare_calls, compared, networks
from torch import nn
from torch.nn import functional as F

from dpkit.sim.hardware import HOSTS
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
RECORD = json.loads((DATA / "framework_code.json").read_text())


def names_called(run):
    return [func.__name__ for func, _, _ in bare_calls(run)]


def test_the_bare_calls_of_modules_are_the_operations_in_them():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    x = torch.ones(2, 3)
    assert names_called(lambda: net(x)) == [
        "linear",
        "add_",  # batch norm counts its batches
        "batch_norm",
        "relu",
    ]


def test_functions_in_python_are_replaced_by_what_they_call():
    x = torch.ones(2, 3, 4)
    ((func, _, _),) = bare_calls(lambda: F.dropout(x, 0.5))
    assert func is torch.dropout is not F.dropout
    assert names_called(lambda: x.shape and x.size(0)) == []


def test_bare_calls_note_nothing_for_autograd():
    layer, x = nn.Linear(3, 4), torch.ones(2, 3)
    ((func, args, kwargs),) = bare_calls(lambda: layer(x))
    out = func(*args, **kwargs)
    assert out.shape == (2, 4)
    assert not out.requires_grad


def test_each_network_runs_with_few_channels():
    for net, X in networks().values():
        assert net(X).shape[-1] in (WIDTH, 4, 1000)
        assert max(p.numel() for p in net.parameters()) <= 400


def test_what_python_does_between_is_in_the_ratio():
    """A module that also counts to a few thousand is far from bare."""
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2)

    def slow():
        sum(range(20_000))
        return layer(x)

    found = compared(slow)
    assert found["calls"] == 1
    assert found["ratio"] > 10
    assert found["microseconds"] > found["bare_microseconds"]


def test_the_record_gives_the_median_of_the_networks():
    ratios = [found["ratio"] for found in RECORD["forward"].values()]
    assert list(RECORD["forward"]) == list(networks())
    assert RECORD["ratio"] == pytest.approx(median(ratios), abs=0.01)
    assert RECORD["provenance"]["uncommitted_changes"] is False


def test_the_preset_is_eager_times_the_ratio():
    eager, modules = HOSTS["eager"], HOSTS["eager-modules"]
    changed = ("launch_seconds", "view_seconds")
    for name in changed:
        expected = RECORD["ratio"] * getattr(eager, name)
        assert getattr(modules, name) == pytest.approx(expected, rel=0.01)
        assert "framework_code.json" in modules.sources[name]
    same = {name: getattr(eager, name) for name in ("name", *changed)}
    assert replace(modules, **same, sources=eager.sources) == eager
