"""Skipped tests are counted, and in CI their reasons are known ones."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.running import skips

pytest_plugins = ["pytester"]

REASONS = tomllib.loads(skips.LISTED.read_text(encoding="utf-8"))["skip"]
TESTS = Path(__file__).parent.parent
EXEMPT = TESTS.parent / "scripts" / "rehearsal" / "exempt.toml"
SKIPPING = """
import pytest

@pytest.mark.parametrize("count", (2, 4))
def test_on_gpus(count):
    pytest.skip("GPUs needed: 2, here: 1")

def test_in_a_dirty_state():
    {what}

def test_that_runs():
    pass
"""
DIRTY = 'pytest.skip("tensors of other tests are alive")'


def lines_after(title, result):
    lines = result.stdout.lines
    (start,) = [i for i, line in enumerate(lines) if title in line]
    return [line.strip() for line in lines[start + 1 :]]


def test_skips_are_counted_by_reason(pytester, run_tests):
    pytester.makepyfile(SKIPPING.format(what=DIRTY))
    result = run_tests("skips")
    assert result.ret == 0
    first, second = lines_after("skipped tests by reason: 3", result)[:2]
    assert first.split(maxsplit=1) == ["2", "GPUs needed: 2, here: 1"]
    assert second.split(maxsplit=1) == [
        "1",
        "tensors of other tests are alive",
    ]


def test_a_run_without_skips_says_so(pytester, run_tests):
    pytester.makepyfile("def test(): pass")
    assert lines_after("skipped tests by reason: 0", run_tests("skips"))


@pytest.mark.parametrize(
    ("what", "status"), [(DIRTY, 1), ("pass", 0)], ids=["dirty", "clean"]
)
def test_in_ci_an_unlisted_reason_fails_by_name(
    pytester, run_tests, monkeypatch, what, status
):
    pytester.makepyfile(test_it=SKIPPING.format(what=what))
    monkeypatch.setenv("CI", "true")
    result = run_tests("skips")
    assert result.ret == status
    named = "test_it.py::test_in_a_dirty_state: tensors of other tests"
    assert (named in result.stdout.str()) == (status == 1)
    assert "test_on_gpus" not in result.stdout.str()


def test_what_was_deselected_is_not_skipped(pytester, run_tests):
    pytester.makepyfile(SKIPPING.format(what=DIRTY))
    result = run_tests("skips", "-k", "runs")
    assert lines_after("skipped tests by reason: 0", result)


@pytest.mark.parametrize("entry", REASONS, ids=lambda entry: entry["reason"])
def test_each_listed_reason_has_a_why_and_is_one_of_a_test(entry):
    assert re.fullmatch(r"[A-Zd].{40,}\.", entry["why"])
    sources = [
        path.read_text()
        for room in ("*", "sim/*", "kit/*", "runs/*", "book/*", "site/*/*")
        for path in TESTS.glob(f"{room}.py")
    ]
    said = re.findall(r'(?:reason=|skip\()f?"([^"]*)', "".join(sources))
    lacking = tomllib.loads(EXEMPT.read_text())["missing"]  # on the double
    said += [why for cells in lacking.values() for why in cells.values()]
    for part in entry["reason"].split("|"):
        assert [text for text in said if re.match(part.rstrip("$"), text)]
