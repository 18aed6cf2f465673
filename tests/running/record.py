"""What a run keeps for ``make test-report``: ``_build/test-run.json``.

Kept are the failed tests with what they printed, which worker ran which files
in which order, and the variables of the environment that change results.
"""

import json
import os
import time
from collections.abc import Generator
from typing import Any

import pytest

from tests.running.skips import by_reason
from tests.running.workers import available_memory, count_cores

# Nothing else of the environment: it holds secrets.
PREFIXES = (
    "ATEN_", "CUBLAS_", "CUDA_", "DNNL_", "DPKIT_", "GLOO_", "GOMP_", "KMP_",
    "LC_", "MALLOC_", "MKL_", "NCCL_", "OMP_", "ONEDNN_", "PYTEST_XDIST_",
    "PYTORCH_", "TORCH_",
)  # fmt: skip
NAMES = (
    "CI", "COLUMNS", "LANG", "NO_COLOR", "PYTHONDEVMODE", "PYTHONHASHSEED",
    "PYTHONOPTIMIZE", "TMPDIR", "TZ",
)  # fmt: skip
MOST_CHARACTERS = 20_000  # of what one test printed, from its end


def environment() -> dict[str, str]:
    """Return the variables that change what the tests do."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name in NAMES or name.startswith(PREFIXES)
    }


class Recorder:
    """A plug-in of the process that hears of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: list[dict[str, str]] = []
        self.files: dict[str, list[str]] = {}
        self.began = time.time()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note where a test ran, and how it failed."""
        worker = getattr(report, "worker_id", "main")
        files = self.files.setdefault(worker, [])
        file = report.nodeid.split("::")[0]
        if not files or files[-1] != file:
            files.append(file)
        if report.failed:
            self.note(report, worker)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that could not be read."""
        if report.failed:
            self.note(report, "main")

    def note(self, report: Any, worker: str) -> None:
        """Note what a test has printed."""
        parts = [("", report.longreprtext), *report.sections]
        printed = "\n".join(f"{title}\n{text}" for title, text in parts)
        self.failed.append(
            {
                "name": report.nodeid,
                "worker": worker,
                "when": getattr(report, "when", "collect"),
                "printed": printed[-MOST_CHARACTERS:].strip(),
            }
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Write the file."""
        yield
        terminal: Any = self.config.pluginmanager.getplugin("terminalreporter")
        skips = by_reason(terminal.stats.get("skipped", []))
        record = {
            "command": self.config.getoption("again"),
            "seed": self.config.getoption("shuffle", None),
            "status": int(session.exitstatus),
            "seconds": round(time.time() - self.began),
            "cores": count_cores(),
            "gigabytes available": round(available_memory() / 1e9, 1),
            "environment": environment(),
            "failed": self.failed,
            "skipped": {reason: len(names) for reason, names in skips.items()},
            "files": self.files,
        }
        file = self.config.rootpath / "_build" / "test-run.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(record, indent=1), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the runs that a target of the Makefile starts."""
    if config.getoption("again") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config))
