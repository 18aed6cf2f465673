"""The records of other frameworks: bound to their listings, and right."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from dpbook.elsewhere.listings import listing
from dpbook.elsewhere.results import (
    FRAMEWORKS,
    record,
    recorded,
    results,
)
from dpbook.elsewhere.steps import flat, load_start, take_steps
from tests.repository import ROOT

BOOK = ROOT / "book"


@pytest.fixture(scope="module")
def expected():
    """The parameters after PyTorch's steps on one device."""
    params, batches = load_start(BOOK)
    cpu = torch.device("cpu")
    return take_steps(params, batches, [cpu])[0]


@pytest.fixture
def book(tmp_path):
    """A copy of the listings and the records."""
    for name in ("elsewhere", "_data/elsewhere"):
        shutil.copytree(BOOK / name, tmp_path / "book" / name)
    return tmp_path / "book"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_way_takes_pytorchs_step(framework, expected):
    found = recorded(framework, BOOK)
    assert {k for _, k in found.params} == {1, 2, 3}
    for (way, k), params in found.params.items():
        most = 1e-9 if way == "Trainer" else 1e-12
        away = np.abs(params - expected).max() + found.apart[way, k]
        assert away < most, (way, k)


def test_the_steps_are_long_enough_to_tell(expected):
    params, _ = load_start(BOOK)
    assert np.abs(expected - flat(params)).max() > 1e-2


@pytest.mark.parametrize("name", ["jax_step.py", "jax_facts.py", "common.py"])
def test_a_record_of_another_listing_is_refused(book, name):
    recorded("jax", book)
    path = book / "elsewhere" / name
    path.write_text(path.read_text() + "# a comment\n")
    with pytest.raises(ValueError, match=r"listing \(framework: jax\)"):
        recorded("jax", book)


def test_an_unknown_framework_is_refused():
    with pytest.raises(ValueError, match="'caffe', known: jax, tensorflow"):
        results("caffe", BOOK)


def test_a_record_keeps_what_was_found(book):
    found = recorded("mxnet", book)
    rng = np.random.default_rng(0)
    params = {
        way: values + 1e-16 * rng.standard_normal(len(values))
        for way, values in found.params.items()
    }
    apart = dict.fromkeys(found.apart, 3e-16)
    facts = {"command": "make elsewhere", "date": "2026-11-30"}
    record(replace(found, params=params, apart=apart), book, facts)
    again = recorded("mxnet", book)
    stored = json.loads((book / "_data/elsewhere/mxnet.json").read_text())
    assert stored["provenance"] == facts
    assert again.apart == apart
    for (way, k), values in params.items():
        most = 1e-13 if way == "Trainer" else 2**-54
        assert np.abs(again.params[way, k] - values).max() < most


def test_listings_stand_as_in_their_file():
    text = listing(BOOK / "elsewhere" / "jax_step.py", "pmap_step", "pad").data
    assert text.startswith('```python\n@partial(jax.pmap, axis_name="data")')
    assert '"""Append rows of zeros until k divides their number."""' in text
    with pytest.raises(ValueError, match="does not define psum"):
        listing(BOOK / "elsewhere" / "jax_step.py", "psum")
