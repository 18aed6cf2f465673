"""What needs node, its packages of `make check`, and a browser."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pack_python
import pytest

from tests.repository import ROOT

CheckPages = Callable[..., tuple[int, list[str]]]
CHECKS = ROOT / "scripts" / "check"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def give_up() -> None:
    """Skip a test; in continuous integration it fails."""
    in_ci = os.environ.get("CI") == "true"
    (pytest.fail if in_ci else pytest.skip)(
        "what make check needs is not installed (run: make check)"
    )


@pytest.fixture(scope="session", autouse=True)
def _what_make_check_needs() -> None:
    """Skip all tests of this folder where nothing can look at a page."""
    has_browser = any(map(shutil.which, BROWSERS))
    has_packages = (CHECKS / "node_modules").exists()
    if not (shutil.which("node") and has_browser and has_packages):
        give_up()


@pytest.fixture(scope="session")
def check_pages() -> CheckPages:
    """Look at a built site as `make check` does, by all checks or by some."""

    def check(root: Path, *names: str) -> tuple[int, list[str]]:
        environment = dict(os.environ)
        for chooses in ("SINCE", "SEED"):
            environment.pop(chooses, None)
        run = subprocess.run(
            ["node", CHECKS / "main.mjs", root, sys.executable, *names],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert run.stderr == ""
        return run.returncode, run.stdout.splitlines()

    return check


@pytest.fixture(scope="session")
def said_by() -> Callable[[str], str]:
    """Run a module of node; return what it prints."""

    def run(source: str) -> str:
        return subprocess.run(
            ["node", "--input-type=module", "-e", source],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return run


@pytest.fixture(scope="session")
def packed() -> Path:
    """Give the Python of the pages, which npm gets and node packs."""
    folder = pack_python.pack()
    if folder is None:
        give_up()
    assert folder
    return folder
