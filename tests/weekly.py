"""What is run in many ways: a few of them by `make test`, all each week."""

from collections.abc import Iterable
from typing import Any

import pytest


def few_of(cases: Iterable[Any], here: Iterable[Any]) -> list[Any]:
    """Return all cases for parametrize; mark as weekly those not ``here``.

    A case of several arguments is a tuple of them.
    """
    cases, here = list(cases), list(here)
    unknown = [case for case in here if case not in cases]
    assert not unknown, f"no such cases (cases: {unknown})"
    return [case if case in here else weekly(case) for case in cases]


def weekly(case: Any) -> Any:
    """Return a case that `make test` leaves to `make test-all`."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.weekly)
