"""The recorded experiment: whole, of this code, and what is said of it."""

import json
from dataclasses import asdict
from statistics import mean, stdev

import pytest

from dpbook.large_batches.results import (
    RULES,
    best_steps,
    errors_by_rate,
    errors_by_way,
    fit,
    spread,
    steps_needed,
)
from dpbook.large_batches.runs import NUM_EXAMPLES, RECIPE, final_error
from tests.repository import ROOT

DATA = ROOT / "book" / "_data"
KS = [1, 2, 4, 8, 16, 32, 64]


def small_record():
    return {
        "recipe": {"lr": 0.01},
        "runs": [
            {"k": 1, "lr": 0.01, "warmup": "none", "errors": [16.0, 17.0]},
            {"k": 2, "lr": 0.01, "warmup": "none", "errors": [18.0, 19.0]},
            {"k": 2, "lr": 0.02, "warmup": "none", "errors": [15.0]},
            {"k": 2, "lr": 0.02, "warmup": "gradual", "errors": [14.0, 15.0]},
        ],
        "steps": [
            {"k": 1, "lr": 0.01, "steps": [10, 20]},
            {"k": 1, "lr": 0.02, "steps": [None, 5]},
            {"k": 2, "lr": 0.01, "steps": [12, 14]},
            {"k": 2, "lr": 0.02, "steps": [6, 8]},
        ],
    }


@pytest.fixture(scope="module")
def record():
    return json.loads((DATA / "large_batches.json").read_text())


def test_errors_by_way():
    ways = errors_by_way(small_record())
    assert list(ways) == list(RULES)
    assert ways["η"] == {1: [16.0, 17.0], 2: [18.0, 19.0]}
    assert ways["k·η"] == {1: [16.0, 17.0], 2: [15.0]}
    assert ways["k·η, gradual warm-up"] == {2: [14.0, 15.0]}


def test_errors_by_rate_use_the_seeds_in_common():
    by_rate = errors_by_rate(small_record())
    assert by_rate == {1: {0.01: 16.0}, 2: {0.01: 18.0, 0.02: 15.0}}


def test_best_steps_leave_out_what_fails():
    assert best_steps(small_record()) == {1: (0.01, 15), 2: (0.02, 7)}


def test_spread():
    assert spread([1.0, 2.0, 6.0]) == "3.0 ± 2.6"


def test_the_record_is_of_this_recipe(record):
    assert record["recipe"] == {
        **asdict(RECIPE),
        "num_examples": NUM_EXAMPLES,
    }
    for key in ("command", "commit", "date", "python", "torch", "cpu"):
        assert record["provenance"][key], key


def test_the_record_is_whole(record):
    for by_k in errors_by_way(record).values():
        assert list(by_k) == KS
        assert all(len(errors) == 10 for errors in by_k.values())
    by_rate = errors_by_rate(record)
    assert all(list(by_rate[k]) == list(by_rate[1]) for k in KS)
    assert [len(e) for e in record["elbow"]["errors"].values()] == [64] * 3
    assert list(best_steps(record)) == [*KS, 128]


@pytest.mark.parametrize(("k", "seed"), [(4, 1), (8, 0)])
def test_a_run_gives_what_was_recorded(record, k, seed):
    """Up to what rounding does on another processor."""
    found = final_error(k, k * RECIPE.lr, seed, "gradual")
    recorded = errors_by_way(record)["k·η, gradual warm-up"][k][seed]
    assert found == pytest.approx(recorded, abs=1.5)


def test_the_rate_of_one_device_is_its_best(record):
    one = errors_by_rate(record)[1]
    assert min(one, key=one.get) == RECIPE.lr


def test_flat_then_an_elbow(record):
    ways = errors_by_way(record)
    means = {k: mean(errors) for k, errors in ways["k·η"].items()}
    assert means[8] - means[1] < 1.5
    assert means[16] - means[8] > 5
    assert means[64] > 80
    assert mean(ways["η"][8]) - means[8] > 8


def test_a_warm_up_does_not_help_where_the_curve_is_flat(record):
    ways = errors_by_way(record)
    for k in (4, 8):
        pairs = zip(ways["k·η, constant warm-up"][k], ways["k·η"][k])
        harm = [a - b for a, b in pairs]
        assert mean(harm) > 3 * stdev(harm) / len(harm) ** 0.5


def test_no_warm_up_moves_the_elbow(record):
    """What ten seeds suggest, 64 do not confirm."""
    elbow = record["elbow"]["errors"]
    for warmup in ("constant", "gradual"):
        away = [a - b for a, b in zip(elbow[warmup], elbow["none"])]
        assert abs(mean(away)) < 2 * stdev(away) / len(away) ** 0.5
        assert abs(mean(away[:10])) > abs(mean(away))


def test_best_rates_lie_inside_the_grids(record):
    """Else a better one may lie beyond."""
    for by_rate in errors_by_rate(record).values():
        rates = sorted(by_rate)
        assert min(by_rate, key=by_rate.get) in rates[1:-1]
    for k, (lr, _) in best_steps(record).items():
        rates = sorted(r["lr"] for r in record["steps"] if r["k"] == k)
        assert lr in rates[1:-1]


def test_the_law_fits_to_a_sixth(record):
    taken = best_steps(record)
    batches = [RECIPE.batch_size * k for k in taken]
    steps = [count for _, count in taken.values()]
    least, critical = fit(batches, steps)
    for batch, count in zip(batches, steps):
        assert abs(count / steps_needed(batch, least, critical) - 1) < 1 / 6


def test_goyal_has_its_source():
    goyal = json.loads((DATA / "goyal2017.json").read_text())
    assert "1706.02677" in goyal["source"]
    warmups = goyal["error_by_warmup_at_8192"]
    assert warmups["gradual"] == goyal["error_by_batch"]["8192"]


def test_both_ends_of_the_law():
    assert steps_needed(1e9, 100, 64) == pytest.approx(100)
    small = [steps_needed(batch, 100, 64) for batch in (0.01, 0.02)]
    assert small[0] / small[1] == pytest.approx(2, rel=1e-3)
    assert steps_needed(64, 100, 64) == 200


@pytest.mark.parametrize("critical", [10.0, 300.0])
def test_fit_finds_what_is_exact(critical):
    batches = [2**i for i in range(4, 12)]
    steps = [steps_needed(b, 150, critical) for b in batches]
    assert fit(batches, steps) == pytest.approx((150, critical))


def test_fit_has_the_least_relative_error():
    batches, steps = [16, 64, 256, 1024], [2100.0, 640.0, 260.0, 150.0]

    def loss(least, critical):
        return sum(
            (steps_needed(b, least, critical) / s - 1) ** 2
            for b, s in zip(batches, steps)
        )

    least, critical = fit(batches, steps)
    for near in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
        beside = least * near[0], critical * near[1]
        assert loss(least, critical) < loss(*beside)


@pytest.mark.parametrize("batches", [[10], [16, 16]])
def test_two_sizes_are_needed(batches):
    with pytest.raises(ValueError, match=r"two numbers \(batches: \[1"):
        fit(batches, [3.3] * len(batches))
