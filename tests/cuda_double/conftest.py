"""Tests of the double itself: asked for by name, or by CUDA_DOUBLE_TESTS=1.

They need a compiler, and start Pythons of their own. Where the double cannot
be built they are skipped; but not in continuous integration.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_ignore_collect(
    collection_path: Path, config: pytest.Config
) -> bool | None:
    named = any("cuda_double" in argument for argument in config.args)
    if named or os.environ.get("CUDA_DOUBLE_TESTS") == "1":
        return None
    return True


@pytest.fixture(scope="session")
def built() -> None:
    """Build the double; on a machine that has much to do it takes minutes."""
    ended = subprocess.run(
        [sys.executable, HERE / "build.py"], capture_output=True, text=True
    )
    if ended.returncode != 0:
        in_ci = os.environ.get("CI") == "true"
        (pytest.fail if in_ci else pytest.skip)(ended.stderr.strip())


@pytest.fixture(scope="session")
def run(built: None) -> Run:
    """Run Python with some arguments under the double; give what it said."""

    def run(
        num_gpus: int,
        *arguments: object,
        seconds: float = 1200,
        **variables: str,
    ) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
        for name in ("CUDA_DOUBLE_LOG", "CUDA_DOUBLE_ROUNDING"):
            environment.pop(name, None)
        environment |= {"PYTHON": sys.executable} | variables
        command = [str(HERE / "run"), str(num_gpus), sys.executable]
        # Messages of NCCL lie there until the next group of ranks begins.
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(
                [*command, *map(str, arguments)],
                capture_output=True,
                text=True,
                env=environment | {"TMPDIR": folder},
                timeout=seconds,
            )

    return run


@pytest.fixture(scope="session")
def outcomes_of(run: Run) -> Callable[[str], dict[str, Any]]:
    """Run all cases of a file, each on its own; give what became of them.

    A case has a ``value``, or an ``error``; what the check has found in it
    is in ``findings``.
    """
    known: dict[str, dict[str, Any]] = {}

    def get(name: str) -> dict[str, Any]:
        if name not in known:
            ended = run(2, HERE / "running_cases.py", HERE / name)
            assert ended.returncode == 0, ended.stderr
            known[name] = json.loads(ended.stdout.splitlines()[-1])
        return known[name]

    return get
