"""What holds for the tests and for the examples in docstrings."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
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
def forking() -> Iterator[Any]:
    """Stand in for the module subprocess, where it starts ``python -c …``.

    The Pythons are forked from one that has imported torch. Where they can be,
    ``prepare`` runs a program that imports more, for all that follow.
    """
    if sys.platform != "linux":
        yield subprocess
        return
    from tests.forking import Server

    with Server() as server:
        yield SimpleNamespace(
            Popen=server.popen, PIPE=subprocess.PIPE, prepare=server.prepare
        )


@pytest.fixture(autouse=True)
def _examples_fork_their_ranks(
    request: pytest.FixtureRequest,
    leaves_nothing: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fork the ranks that an example launches, if it launches any."""

    def start(*args: Any, **kwargs: Any) -> Any:
        return request.getfixturevalue("forking").Popen(*args, **kwargs)

    if isinstance(request.node, pytest.DoctestItem):
        forks = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)
        starting = import_module("dpkit.processes.starting")
        monkeypatch.setattr(starting, "subprocess", forks)
