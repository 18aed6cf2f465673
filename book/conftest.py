"""How nbval runs and compares the notebooks of this folder."""

import os
from typing import Any

import pytest

# The kernels inherit this process's environment. Progress bars would write
# to stderr, and another backend than the inline one would draw no figure.
os.environ["TQDM_DISABLE"] = "1"
os.environ.pop("MPLBACKEND", None)

# Figures differ in the last digit of a coordinate from one processor to the
# next, and warnings name lines of installed files: neither is compared.
NOT_COMPARED = ("stderr", "image/svg+xml")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Tell nbval which outputs of a notebook not to compare."""
    notebook: Any = collector
    if hasattr(notebook, "skip_compare"):
        notebook.skip_compare += NOT_COMPARED


# They train: a minute or more each. `-m "not slow"` leaves out the whole
# chapter, as a cell needs those above it.
SLOW = {
    "cluster",
    "data-parallelism",
    "data-parallelism-concise",
    "overlap",
    "sharding",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cells of the chapters that take long."""
    for item in items:
        if item.path.suffix == ".ipynb" and item.path.stem in SLOW:
            item.add_marker("slow")
