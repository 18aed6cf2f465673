"""A test that failed is tried once more, before the run counts as failed.

It counts where workers run the tests (``-n``). At the end its whole file runs
again in one process: alone, and if it passes, after the files that its worker
had run before it, since a fault of their order passes alone. Chapters among
these are left out: each had a process of its own. If all of that passes, the
test is *flaky*, and the run succeeds. When two tests have failed, neither is
tried again. All cells of a chapter count as one test, because each needs those
above it.

For ``make test-report``, ``_build/test-run.json`` keeps which files each
worker has run, in which order, and how to run them again. The flaky tests of
several runs are in ``_build/flaky.txt``: ``.ci/run`` fails if there are two.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest

# What changes results, and holds no secret.
VARIABLES = re.compile(
    "(ATEN|CUDA|DPKIT|GLOO|MALLOC|MKL|NCCL|OMP|ONEDNN|PYTHON|PYTORCH|TORCH)"
    "[A-Z_]*$"
)


def in_one_process(config: pytest.Config) -> list[str]:
    """Return the command of this run, without workers and without files."""
    files = config.getoption("file_or_dir")
    options = [
        word
        for word in config.invocation_params.args
        if word not in files and not str(word).startswith("--junitxml")
    ]
    return [sys.executable, "-m", "pytest", *map(str, options), "-n", "0"]


class SecondTry:
    """Hears of all tests, and tries again the one that has failed."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran: dict[str, list[str]] = {}  # the files, by worker
        self.failed: dict[str, tuple[str, list[str]]] = {}
        self.unread = False  # whether some file could not be read
        self.flaky = ""

    def pytest_collectreport(self, report: Any) -> None:
        """Note that a file could not be read."""
        self.unread |= report.failed

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note where a test ran, and what its worker had run by then."""
        files = self.ran.setdefault(report.node.gateway.id, [])
        file = report.nodeid.split("::")[0]
        if file not in files:
            files.append(file)
        if report.failed:
            test = file if file.endswith(".ipynb") else report.nodeid
            self.failed.setdefault(test, (report.nodeid, [*files]))

    # After the workers have ended, and before the summary.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Try the test again, and write the file."""
        yield
        whole = not (self.unread or self.config.getoption("maxfail"))
        if whole and session.exitstatus == 1 and len(self.failed) == 1:
            self.try_again(session)
        kept = {
            "command": self.command(),
            "ran": self.ran,
            "flaky": self.flaky,
        }
        folder = self.config.rootpath / "_build"
        folder.mkdir(exist_ok=True)
        text = json.dumps(kept, indent=1)
        (folder / "test-run.json").write_text(text, encoding="utf-8")
        if self.flaky:
            with (folder / "flaky.txt").open("a", encoding="utf-8") as file:
                print(self.flaky, file=file)

    def try_again(self, session: pytest.Session) -> None:
        """Run its file, alone and then after those before it."""
        ((name, (*before, file)),) = self.failed.values()
        before = [other for other in before if not other.endswith(".ipynb")]
        if self.passes(f"tried again, alone: {name}", [file]) and (
            not before
            or self.passes(
                f"tried again, after {len(before)} files: {name}",
                [*before, file],
            )
        ):
            session.exitstatus = pytest.ExitCode.OK
            self.flaky = name

    def passes(self, title: str, files: list[str]) -> bool:
        """Return whether files pass in one process, which prints a title."""
        print(f"\n\n{title}", flush=True)
        words = [*in_one_process(self.config), *files]
        done = subprocess.run(words, cwd=self.config.rootpath)
        return done.returncode == 0

    def command(self) -> str:
        """Return what runs files as they have run, if these are added."""
        variables = [
            f"{name}={value}"
            for name, value in sorted(os.environ.items())
            if VARIABLES.match(name)
        ]
        return shlex.join([*variables, *in_one_process(self.config)])

    def pytest_unconfigure(self) -> None:
        """End with what is to be mended, or how to report it."""
        seed = self.config.getoption("shuffle", None)
        order = f" (its order: SHUFFLE={seed})" if seed else ""
        if self.flaky:
            print(f"flaky: {self.flaky}")
        elif self.failed or self.unread:
            print(f"To report this run{order}: make test-report")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the workers, in the process that gives out the work."""
    if config.getoption("tx", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry(config))
