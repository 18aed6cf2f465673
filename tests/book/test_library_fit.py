"""The closed form of a library's collectives, against what was measured."""

import json

import pytest
from recorders.trust.library_fit import (
    FITTED,
    allreduce_seconds,
    fit_ring,
    library_errors,
    measured,
)

from dpkit.plans.bounds import seconds_at
from dpkit.sim.hardware import LINKS
from dpkit.sim.hardware.clusters import cluster
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
SERVERS = DATA / "nccl_servers.json"


def test_what_links_have_is_what_fits():
    """The presets hold the fit, rounded."""
    tables = measured(SERVERS)
    for name, link in (("a100-nvlink", "nvlink3"), ("v100-nvlink", "nvlink2")):
        step, rate = fit_ring(tables[name], 8)
        preset = LINKS[link]
        copies = preset.bytes_per_second * preset.achieved
        assert step == pytest.approx(preset.library_step_seconds, rel=0.02)
        assert rate / copies == pytest.approx(preset.library_share, rel=0.02)


def mean_error(errors):
    return sum(map(abs, errors.values())) / len(errors)


def test_errors_on_servers():
    found = {n: mean_error(e) for n, e in library_errors(SERVERS).items()}
    assert all(found[name] < 0.07 for name in FITTED)
    assert found["a100-nvlink-2"] < 0.15
    assert found["v100-pcie"] < 0.21
    # The network there is EFA, of which Ethernet's preset knows nothing.
    assert found["v100-efa"] < 0.4
    assert found["a100-efa"] < 0.3


@pytest.mark.parametrize(
    ("table", "most"), [("another", 0.12), ("fitted", 0.08)]
)
def test_errors_on_h200(table, most):
    """The link was fitted to "another"; the table "fitted" is unseen."""
    record = json.loads((DATA / "nccl_h200.json").read_text())
    rates = record["tables"][table]["bus_gigabytes_per_second"]
    errors = {}
    for n, rate in rates.items():
        seconds = seconds_at(
            "allreduce", 8, num_bytes=int(n), bytes_per_second=1e9 * rate
        )
        found = allreduce_seconds(cluster(8, "h200", "nvlink4"), int(n))
        errors[n] = found / seconds - 1
    assert mean_error(errors) < most
