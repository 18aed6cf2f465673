"""What holds for the tests and for the examples in docstrings."""

import builtins

import pytest


@pytest.fixture(autouse=True)
def _nothing_shown_lives_on() -> None:
    """Forget what an example showed last: Python keeps it, as ``_``.

    A tensor on a simulated device would be in the way of the next example,
    where that wants other hardware.
    """
    vars(builtins).pop("_", None)
