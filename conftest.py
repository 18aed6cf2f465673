"""What holds for the tests and for the examples in docstrings."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

# How the tests are run: each is a plug-in of pytest.
pytest_plugins = [
    "tests.left_behind.plugin",
    "tests.running.order",
    "tests.running.second_try",
    "tests.running.skips",
    "tests.running.workers",
]

# Where it is set, print writes a line and its end apart, and the lines of two
# processes mix.
os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(autouse=True, scope="session")
def _names_in_examples(doctest_namespace: dict[str, Any]) -> None:
    """Every example may use ``dpkit``, ``torch`` and ``nn``."""
    import torch

    import dpkit

    # An example is a program, and no part of the module that it explains.
    doctest_namespace.update(
        dpkit=dpkit, torch=torch, nn=torch.nn, __name__="__main__"
    )


@pytest.fixture(scope="session")
def forking() -> Any:
    """Stand in for the module subprocess, where it starts ``python -c …``.

    The Pythons are forked from the server of dpkit.processes. Where they can
    be, ``prepare`` runs a program that imports more, for all that follow.
    """
    if sys.platform != "linux":
        return subprocess
    from dpkit.processes.forking import fork_server
    from tests.forked_python import popen

    server = fork_server({"OMP_NUM_THREADS": "1", **os.environ})
    assert server
    return SimpleNamespace(
        Popen=popen,
        PIPE=subprocess.PIPE,
        STDOUT=subprocess.STDOUT,
        prepare=server.prepare,
    )
