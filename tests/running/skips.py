"""Each run ends with how many tests were skipped, by reason.

A skipped test sees no fault. In continuous integration (``CI=true``) a reason
that ``skips.toml`` does not list fails the run, by the names of the tests.
"""

import os
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

LISTED = Path(__file__).parent / "skips.toml"
UNLISTED = "in CI these fail, because tests/running/skips.toml has no such"


def read_reasons() -> list[re.Pattern[str]]:
    """Return the patterns of the reasons for which a test may be skipped."""
    listed = tomllib.loads(LISTED.read_text(encoding="utf-8"))["skip"]
    return [re.compile(entry["reason"]) for entry in listed]


def reason_of(report: Any) -> str:
    """Return why a test, or a whole file, was skipped."""
    path_line_reason: tuple[str, int, str] = report.longrepr
    return path_line_reason[2].removeprefix("Skipped: ") or "no reason"


def by_reason(reports: list[Any]) -> dict[str, list[str]]:
    """Return the names of the skipped tests, by reason; most tests first."""
    names: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        names[reason_of(report)].append(report.nodeid)
    return dict(sorted(names.items(), key=lambda item: -len(item[1])))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of skips; fail for a reason that is not listed."""
    skips = by_reason(terminalreporter.stats.get("skipped", []))
    total = sum(map(len, skips.values()))
    terminalreporter.section(f"skipped tests by reason: {total}")
    listed = read_reasons()
    unlisted = {
        reason: names
        for reason, names in skips.items()
        if not any(pattern.search(reason) for pattern in listed)
    }
    for reason, names in skips.items():
        terminalreporter.line(f"{len(names):6}  {reason}")
    if unlisted:
        terminalreporter.line(f"{UNLISTED} reason:")
    for reason, names in unlisted.items():
        for name in names:
            terminalreporter.line(f"{name}: {reason}")
    session = terminalreporter._session
    in_ci = os.environ.get("CI") == "true"
    if unlisted and in_ci and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
