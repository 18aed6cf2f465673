"""What `make bench` makes of the times that it took."""

from pathlib import Path

import pytest
from bench_parts import commits
from bench_parts.committed import Committed
from bench_parts.ratios import Ratio, Spread, added, over
from bench_parts.rows import Row
from in_turns import REPETITIONS, WARM_UP, in_turns

SECONDS = {"one": [1.0, 2.0, 9.0], "other": [2.0, 8.0, 9.0]}


def test_a_ratio_is_taken_in_each_repetition():
    """Of the medians it would be 2 / 8."""
    found = Ratio("", over("one", "other")).spread(SECONDS)
    assert found == Spread(0.5, low=0.25, high=1.0)
    assert str(found) == "0.50 (0.25 to 1.00)"


def test_what_is_added_is_counted_from_the_plain_way():
    seconds = SECONDS | {"plain": [0.5, 1.0, 5.0]}
    found = Ratio("", added("one", "other", plain="plain")).spread(seconds)
    assert found == Spread(1 / 3, low=1 / 7, high=1.0)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        ({}, ""),
        ({"at_most": 1.3}, "goal ≤ 1.3: reached"),
        ({"at_most": 1.2}, "goal ≤ 1.2: reached"),
        ({"at_most": 1.1}, "goal ≤ 1.1: hidden by the spread"),
        ({"at_most": 0.95}, "goal ≤ 0.95: hidden by the spread"),
        ({"at_most": 0.8}, "goal ≤ 0.8: missed"),
        ({"at_least": 0.9}, "goal ≥ 0.9: reached"),
        ({"at_least": 1.1}, "goal ≥ 1.1: hidden by the spread"),
        ({"at_least": 1.3}, "goal ≥ 1.3: missed"),
    ],
)
def test_a_goal_inside_the_spread_is_hidden(goal, verdict):
    found = Spread(1.0, low=0.9, high=1.2)
    assert Ratio("", over("one", "other"), **goal).verdict(found) == verdict


def test_each_way_is_measured_once_in_a_turn():
    """The runs to warm up are left out, and none is always the first."""
    order = []

    def measure(name):
        order.append(name)
        return len(order)

    found = in_turns({"a": lambda: measure("a"), "b": lambda: measure("b")})
    assert order[:6] == ["a", "b", "b", "a", "a", "b"]
    assert len(order) == 2 * (WARM_UP + REPETITIONS)
    assert found["a"][:2] == [5, 8]
    assert found["b"][:2] == [6, 7]


def test_a_row_tells_its_ratio_its_goal_and_the_last_one(tmp_path, capsys):
    file = tmp_path / "ratios.json"
    before = Committed("a CPU", file)
    before.note("sum (CPU time): adds", Spread(0.6, 0.5, 0.7))
    before.note("not now", Spread(2, 1, 3))
    before.write(date="2026-11-25")
    another = Committed("another CPU", file)
    another.write(date="2026-11-25")

    now = Committed("a CPU", file)
    ratio = Ratio("adds", over("one", "other"), at_most=0.2)
    Row("sum", "CPU time", SECONDS, [ratio]).show(now)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "  adds: 0.50 (0.25 to 1.00); goal ≤ 0.2: missed; "
        "last 0.60 (0.50 to 0.70)"
    )
    now.write(date="2026-11-26")
    known = Committed("a CPU", file)
    assert known.last("sum (CPU time): adds") == Spread(0.5, 0.25, 1.0)
    assert known.last("not now") == Spread(2, 1, 3)
    assert another.last("sum (CPU time): adds") is None
    assert '"another CPU"' in file.read_text()


def test_a_worker_times_the_package_of_its_tree(tmp_path):
    (tmp_path / "dpkit").mkdir()
    (tmp_path / "dpkit" / "__init__.py").write_text("")
    assert commits._once(tmp_path, "import") > 0


def test_a_worker_without_the_package_is_no_measurement(tmp_path):
    """The dpkit of the environment is found instead."""
    with pytest.raises(RuntimeError, match=r"a worker failed .*import"):
        commits._once(tmp_path, "import")


@pytest.mark.skipif(
    not (commits.ROOT / ".git").exists(), reason="needs the repository"
)
def test_a_commit_is_unpacked_for_a_while():
    with commits.tree_of("HEAD") as tree:
        assert (tree / "dpkit" / "sim" / "__init__.py").exists()
    assert not Path(tree).exists()


def test_an_unknown_commit_is_refused():
    unpacked = commits.tree_of("no-commit")
    with pytest.raises(SystemExit, match=r"no such commit .*'no-commit'"):
        unpacked.__enter__()
