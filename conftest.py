"""What holds for the tests and for the examples in docstrings."""

import builtins
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _nothing_shown_lives_on() -> None:
    """Forget what an example showed last: Python keeps it, as ``_``.

    A tensor on a simulated device would be in the way of the next example,
    where that wants other hardware.
    """
    vars(builtins).pop("_", None)


@pytest.fixture(autouse=True, scope="session")
def _names_in_examples(doctest_namespace: dict[str, Any]) -> None:
    """Every example may use ``dpkit``, ``torch`` and ``nn``."""
    import torch

    import dpkit

    doctest_namespace.update(dpkit=dpkit, torch=torch, nn=torch.nn)
