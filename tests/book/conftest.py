"""Fixtures that the tests of the book share."""

import sys
from typing import TYPE_CHECKING, Any

import pytest

# As in tests/conftest.py, what takes long is imported where it is used.
if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The images of Fashion-MNIST are the same for all processes.
LOADED = """
import functools, gzip
from dpbook.common.datasets import load_fashion_mnist

gzip.decompress = functools.cache(gzip.decompress)
load_fashion_mnist()
"""


@pytest.fixture(scope="session")
def forking(forking: Any) -> Any:
    """Let a process that is forked have the images of the training job."""
    if sys.platform == "linux":
        forking.prepare(LOADED)
    return forking


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list["Axes"]:
    """Collect the axes that pictures are drawn on."""
    from dpbook.common import plots

    drawn: list[Axes] = []
    savefig = plots.Figure.savefig

    def watched(figure: plots.Figure, *args: Any, **kwargs: Any) -> None:
        drawn.extend(figure.axes)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(plots.Figure, "savefig", watched)
    return drawn
