"""What book/_data records: with provenance, and as good as claimed."""

import json

from tests.repository import ROOT

DATA = ROOT / "book" / "_data"


def load(name):
    return json.loads((DATA / f"{name}.json").read_text())


def test_every_record_tells_where_it_comes_from():
    for path in DATA.glob("*.json"):
        record = json.loads(path.read_text())
        assert "provenance" in record or "source" in record, path.name


def test_headline_has_its_provenance():
    provenance = load("headline")["provenance"]
    for key in ("command", "commit", "date", "python", "torch", "cpu"):
        assert provenance[key], key
    assert provenance["uncommitted_changes"] is False


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
