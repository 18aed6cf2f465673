"""What the tests of how tests are run share."""

from collections.abc import Callable

import pytest

from tests.repository import ROOT

RunTests = Callable[..., pytest.RunResult]


@pytest.fixture
def run_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> RunTests:
    """Run pytest in a folder of its own, within this process.

    Where workers run the tests (``-n``), it is a new process, which costs a
    hundred times as much.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_AUTO_NUM_WORKERS", "CI"):
        monkeypatch.delenv(name, raising=False)

    def run(plugins: str, *words: str) -> pytest.RunResult:
        named = [f"-ptests.running.{plugin}" for plugin in plugins.split()]
        if "-n" in words:
            return pytester.runpytest_subprocess(*named, *words)
        return pytester.runpytest_inprocess(*named, *words)

    return run
