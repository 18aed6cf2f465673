"""What book/_data records: with provenance, and as good as claimed."""

import json
import re

import pytest

from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
RECORDS = {
    path.relative_to(DATA).with_suffix("").as_posix(): json.loads(
        path.read_text()
    )
    for path in sorted(DATA.rglob("*.json"))
}
FACTS = {"command", "commit", "date", "python", "torch", "cpu"}
CLEAN = "committed code"
OF_OTHERS = "needs checkouts of the scripts of others"
# What the record of a run lacks, and why it has not been made again.
LACKING = {
    "calibrated_cpu": (
        {"commit", CLEAN},
        "dpkit calibrate writes no commit, as a reader has the package alone",
    ),
    "calibrated_h200": ({CLEAN}, "needs an H200"),
    "comparisons_before": (
        {*FACTS, CLEAN},
        "read off what pages showed at the commit that its source names",
    ),
    "forecasts_of_scripts": ({CLEAN}, OF_OTHERS),
    "gpu_operators": ({CLEAN}, "needs an H200"),
    "planted_mistakes": ({CLEAN}, OF_OTHERS),
}


def load(name):
    return RECORDS[name]


def lacks(record):
    """Return which facts the record of a run lacks."""
    facts = record.get("provenance", {})
    found = {name for name in FACTS if not facts.get(name)}
    clean = facts.get("uncommitted_changes") is False
    return found if clean else found | {CLEAN}


def is_published(name, record):
    """Return whether it has numbers of others, with their source."""
    source = record.get("source", "")
    command = re.match(r"(make|python3?) ", source)
    return bool(source) and not command and name not in LACKING


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_tells_where_it_comes_from(name):
    """Published numbers name their source, and a run all that is listed."""
    record = RECORDS[name]
    if is_published(name, record):
        assert "provenance" not in record
    else:
        missing, _ = LACKING.get(name, (set(), ""))
        assert lacks(record) == missing


def test_what_lacks_something_is_there():
    assert LACKING.keys() <= RECORDS.keys()


def test_headline_runs():
    """All reach 0.80; one device and two differ by less than 0.03."""
    runs = load("headline")["runs"]
    final = {
        (run["num_devices"], run["seed"]): run["accuracies"][-1]
        for run in runs
    }
    assert set(final) == {(k, seed) for k in (1, 2) for seed in range(3)}
    assert min(final.values()) >= 0.80
    for seed in range(3):
        assert abs(final[1, seed] - final[2, seed]) < 0.03
    assert all(len(run["accuracies"]) == 10 for run in runs)
    assert all(run["clock"].startswith(("simul", "meas")) for run in runs)
