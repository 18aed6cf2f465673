"""Links of PCI Express against copies and allreduces that were measured."""

import json

import pytest
from recorders.trust.links import FITTED, allreduce_rows, copy_rows

from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
PCIE = json.loads((DATA / "pcie.json").read_text())
SERVERS = json.loads((DATA / "nccl_servers.json").read_text())
V100 = SERVERS["tables"]["v100-pcie"]
LARGE = 2**17  # bytes, from which on a library is bound by the link


def _size(row):
    return int(row.configuration.split()[0].replace(",", ""))


def errors(rows, least):
    """Return what rows of allreduces of so many bytes are off."""
    return [r.factor - 1 for r in rows if _size(r) >= least]


def test_without_peer_access_ways_share_a_path():
    """Both ways at once no faster; the preset is the fast end of a range."""
    rows = copy_rows(PCIE["copies"])
    assert len(rows) == 2 * len(PCIE["copies"])
    for one, both in zip(rows[::2], rows[1::2]):
        assert both.predicted == pytest.approx(one.predicted)
        assert both.measured < 1.1 * one.measured
    found = [row.factor - 1 for row in rows]
    assert 0.1 < min(found) < 0.2
    assert 1.0 < max(found) < 1.4


def test_cards_that_reach_each_other_are_predicted_where_they_are_large():
    rows = allreduce_rows(V100, "pcie3-p2p", FITTED)
    assert {r.kind for r in rows} == {"fitted", "unseen"}
    assert max(map(abs, errors(rows, LARGE))) < 0.05


def test_the_slow_link_is_slower_than_cards_that_reach_each_other():
    """Three to eight times, for what a library sends in large messages."""
    found = errors(allreduce_rows(V100, "pcie3"), LARGE)
    assert 2.4 < min(found) < max(found) < 7


def test_the_slow_link_is_faster_than_cards_on_one_switch():
    found = errors(allreduce_rows(PCIE["allreduce"], "pcie3"), 2**23)
    assert len(found) == 3
    assert all(-0.4 < error < -0.3 for error in found)
