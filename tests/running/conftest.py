"""What the tests of how tests are run share."""

from collections.abc import Callable

import pytest

from tests.repository import ROOT

RunTests = Callable[..., pytest.RunResult]


@pytest.fixture
def run_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> RunTests:
    """Run pytest in a new process, in a folder of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_AUTO_NUM_WORKERS", "CI"):
        monkeypatch.delenv(name, raising=False)

    def run(plugin: str, *words: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess(
            "-p", f"tests.running.{plugin}", *words
        )

    return run
