"""Tests of dpkit.data_parallel.nested."""

import copy
import math
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, is_dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dpkit
from dpkit.data_parallel.nested import gather_nested, scatter_nested


class Pair(NamedTuple):
    first: object
    second: object


@dataclass(frozen=True)
class Result:
    first: object
    second: object
    made: str = field(default="of two", init=False)


class Stack(list):
    """A list that knows more than its items."""

    name = "none"


class Record(dict):
    """A dict that is not made of items alone."""

    def __init__(self, name, **items):
        super().__init__(**items)
        self.name = name


def as_stack(items):
    stack = Stack(items)
    stack.name = "given"
    return stack


def tensors(rows):
    shapes = st.lists(st.integers(0, 3), max_size=2)
    dtypes = st.sampled_from(
        [torch.float64, torch.float32, torch.int64, torch.bool]
    )
    return st.builds(
        lambda shape, dtype, seed: torch.randint(
            -9,
            9,
            (rows, *shape),
            generator=torch.Generator().manual_seed(seed),
        ).to(dtype),
        shapes,
        dtypes,
        st.integers(0, 99),
    )


def structures(rows):
    values = st.none() | st.integers() | st.text(max_size=3) | st.booleans()
    keys = st.text(max_size=2) | st.integers(0, 9)

    def containers(items):
        lists = st.lists(items, max_size=3)
        dicts = st.dictionaries(keys, items, max_size=3)
        return st.one_of(
            lists,
            lists.map(tuple),
            lists.map(as_stack),
            st.builds(Pair, items, items),
            st.builds(Result, items, items),
            dicts,
            dicts.map(OrderedDict),
            dicts.map(lambda d: defaultdict(list, d)),
            st.builds(Record, st.text(), a=items, b=items),
        )

    return st.recursive(tensors(rows) | values, containers, max_leaves=8)


def check_same(found, given, device):
    """Compare types, structure, values, dtypes and places."""
    assert isinstance(found, torch.Tensor) == isinstance(given, torch.Tensor)
    if isinstance(given, torch.Tensor):
        assert found.device == device
        assert found.dtype == given.dtype
        assert torch.equal(found.cpu(), given)
        return
    assert type(found) is type(given)
    if isinstance(given, dict | list):
        assert vars_of(found) == vars_of(given)
    if isinstance(given, dict):
        assert list(found) == list(given)
        for key in given:
            check_same(found[key], given[key], device)
    elif is_dataclass(given):
        for name in ("first", "second", "made"):
            one, other = getattr(found, name), getattr(given, name)
            check_same(one, other, device)
    elif isinstance(given, tuple | list):
        assert len(found) == len(given)
        for one, other in zip(found, given, strict=True):
            check_same(one, other, device)
    else:
        assert found == given


def vars_of(value):
    if isinstance(value, defaultdict):
        return value.default_factory
    return getattr(value, "name", None)


cases = st.integers(0, 7).flatmap(
    lambda rows: st.tuples(
        st.lists(structures(rows), max_size=3),
        st.dictionaries(st.sampled_from("xyz"), structures(rows), max_size=2),
    )
)
places = st.builds(
    dpkit.devices, st.integers(1, 5), st.sampled_from(["sim", "cpu"])
)


@given(cases, places)
@settings(max_examples=25)
def test_gather_undoes_scatter(case, devices):
    nested = (tuple(case[0]), case[1])
    before = copy.deepcopy(nested)
    shards = scatter_nested(nested, devices)
    check_same(gather_nested(shards, devices[0]), nested, devices[0])
    check_same(nested, before, torch.device("cpu"))  # and leaves it alone


class Echo(nn.Module):
    def forward(self, *args, **kwargs):
        return args, kwargs


@given(cases, places)
@settings(max_examples=25)
def test_the_wrapper_returns_what_it_got(case, devices):
    args, kwargs = tuple(case[0]), case[1]
    found = dpkit.DataParallel(Echo(), devices)(*args, **kwargs)
    check_same(found, (args, kwargs), devices[0])


def test_shards_are_those_of_scatter(get_devices):
    devices = get_devices(3)
    x, y = torch.randn(7, 2), torch.arange(7)
    shards = scatter_nested({"x": x, "more": [Pair(y, "word")]}, devices)
    assert len(shards) == 3
    for shard, x_shard, y_shard in zip(
        shards,
        dpkit.scatter(x, devices),
        dpkit.scatter(y, devices),
        strict=True,
    ):
        assert shard["x"].device == x_shard.device
        assert torch.equal(shard["x"], x_shard)
        assert torch.equal(shard["more"][0].first, y_shard)
        assert shard["more"][0].second == "word"


@pytest.mark.parametrize(
    ("rows", "expected"), [(0, [0]), (1, [1]), (2, [1, 1]), (7, [3, 2, 2])]
)
def test_no_shard_is_empty_but_where_all_are(get_devices, rows, expected):
    shards = scatter_nested([torch.zeros(rows, 2)], get_devices(3))
    assert [len(shard[0]) for shard in shards] == expected


def test_without_dimensions(get_devices):
    devices = get_devices(3)
    nested = {"x": torch.zeros(7), "scale": torch.tensor(2.0)}
    shards = scatter_nested(nested, devices)
    assert [shard["scale"].device for shard in shards] == devices
    assert [float(shard["scale"]) for shard in shards] == [2, 2, 2]
    shards[0]["scale"] += 1  # copies, on one device too
    assert float(nested["scale"]) == float(shards[1]["scale"]) == 2
    for r, shard in enumerate(shards):
        shard["scale"].fill_(r)
    scales = gather_nested(shards, devices[0])["scale"]
    assert torch.equal(scales.cpu(), torch.tensor([0.0, 1.0, 2.0]))
    # Alone they give nothing to split, and go to one device.
    (alone,) = scatter_nested(torch.tensor(2.0), devices)
    assert alone.device == devices[0]
    assert gather_nested([alone], devices[0]).shape == (1,)


def test_shards_alias_nothing(get_devices):
    x = torch.zeros(4)
    for shard in scatter_nested([x], get_devices(2)):
        shard[0] += 1
    assert torch.equal(x, torch.zeros(4))


def test_one_tensor_twice_stays_one(get_devices):
    x = torch.zeros(4)
    for shard in scatter_nested((x, [x]), get_devices(2)):
        assert shard[0] is shard[1][0]


def test_subclasses_stay_what_they_are(get_devices):
    devices = get_devices(2)
    nested = (Record("run", x=torch.zeros(3)), as_stack([torch.ones(3)]))
    shards = scatter_nested(nested, devices)
    for found in (*shards, gather_nested(shards, devices[0])):
        assert type(found[0]) is Record
        assert type(found[1]) is Stack
        assert (found[0].name, found[1].name) == ("run", "given")
    assert [len(shard[0]["x"]) for shard in shards] == [2, 1]


def test_what_has_no_tensors_is_given_as_it_is(get_devices):
    log, options = [], Record("fast", n=1)
    for shard in scatter_nested(
        (torch.zeros(4), log, options), get_devices(2)
    ):
        assert shard[1] is log
        assert shard[2] is options


def test_gradients_flow_through_both(get_devices):
    devices = get_devices(3)
    x = torch.arange(14.0).view(7, 2).requires_grad_()  # sums are exact
    scale = torch.tensor(2.0, requires_grad=True)
    shards = scatter_nested((x, scale), devices)
    whole = gather_nested([a * b for a, b in shards], devices[0])
    assert whole.device == devices[0]
    whole.sum().backward()
    assert torch.equal(x.grad, torch.full((7, 2), 2.0))
    assert scale.grad == x.sum()


def test_rows_that_differ(get_devices):
    nested = {"x": torch.zeros(7), "more": [Pair(torch.zeros(5, 7), 1)]}
    with pytest.raises(ValueError, match=r"rows \(\['x'\]: 7, \['more'\]"
                       r"\[0\]\.first: 5\)"):  # fmt: skip
        scatter_nested(nested, get_devices(2))


@pytest.mark.parametrize(
    "parts",
    [
        ([1], [2]),
        (["a"], ["b"]),
        (1, True),
        ([torch.zeros(2)], [None]),
        ([torch.zeros(2)], [torch.tensor(1.0)]),
        ([torch.zeros(2)], [0.0]),
        ([0.0], [torch.zeros(2)]),
        ([torch.zeros(2)], (torch.zeros(2),)),
        ([torch.zeros(2)], [torch.zeros(2), 1]),
        ([{"a": torch.zeros(2)}], [{"b": torch.zeros(2)}]),
        ([torch.zeros(2, 3)], [torch.zeros(2, 4)]),
        ([np.zeros(2)], [np.zeros(2)]),
        ([math.nan], [-math.nan]),
        ([{torch.ones(2)}], [{torch.ones(2)}]),
        ([deque([torch.ones(2)])], [deque([torch.ones(2)])]),
        ([Result(torch.ones(2), 3)], [Result(torch.ones(2), 4)]),
    ],
)
def test_parts_that_are_not_alike(parts):
    with pytest.raises(ValueError, match="cannot be joined"):
        gather_nested(parts, torch.device("cpu"))


def test_the_error_says_where():
    parts = [{"y": [torch.zeros(2), 3]}, {"y": [torch.zeros(2), 4]}]
    with pytest.raises(ValueError, match=r"\(outputs\['y'\]\[1\]: 3, 4\)"):
        gather_nested(parts, torch.device("cpu"))
    parts = [Result({"n": 3}, None), Result({"n": torch.ones(2)}, None)]
    with pytest.raises(ValueError, match=r"\(outputs\.first\['n'\]: 3, ten"):
        gather_nested(parts, torch.device("cpu"))
    parts = [torch.zeros(2, 3), torch.zeros(2, 4)]
    with pytest.raises(ValueError, match=r"shape \(2, 3\), .* \(2, 4\)\)"):
        gather_nested(parts, torch.device("cpu"))


def test_dicts_in_another_order():
    parts = [
        {"a": torch.zeros(1), "b": torch.ones(1)},
        {"b": torch.ones(1), "a": torch.zeros(1)},
    ]
    whole = gather_nested(parts, torch.device("cpu"))
    assert torch.equal(whole["a"], torch.zeros(2))
    assert torch.equal(whole["b"], torch.ones(2))


def test_what_torch_returns_by_name(get_devices):
    """The values and indices of a maximum are a tuple with names."""
    devices = get_devices(2)
    x = torch.randn(5, 3)
    (shards,) = zip(*scatter_nested((x,), devices), strict=True)
    whole = gather_nested([s.max(dim=1) for s in shards], devices[0])
    assert type(whole) is type(x.max(dim=1))
    assert torch.equal(whole.indices.cpu(), x.max(dim=1).indices)
