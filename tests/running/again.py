"""The last lines of a run that failed: what repeats it, and what reports it.

``--again=COMMAND`` says what started this run; the Makefile gives it.
"""

import shlex
from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the command that repeats this run."""
    parser.addoption(
        "--again", metavar="COMMAND", help="the command that repeats this run"
    )


def last_lines(again: str, seed: str | None) -> list[str]:
    """Return what to say when a run has failed."""
    order = f" in the same order (seed: {seed})" if seed else ""
    environment = [w for w in shlex.split(again) if w.startswith("ENV=")]
    report = shlex.join(["make", "test-report", *environment])
    return [
        f"To repeat this run{order}: {again}",
        f"To report it, attach the file that this command writes: {report}",
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)  # below all that pytest prints
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Print the last lines, if this run has failed."""
    yield
    config = session.config
    again: str | None = config.getoption("again")
    if not again or not session.exitstatus or hasattr(config, "workerinput"):
        return
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    for line in last_lines(again, config.getoption("shuffle", None)):
        terminal.line(line)
