"""A test in whose process the check finds something fails by it."""

from collections.abc import Iterator

import pytest

from cuda_double.findings import findings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    before = len(findings())
    outcome = yield  # an exception of the test passes by
    found = findings(before)
    if found:
        pytest.fail(
            "the double of CUDA has found:\n" + "\n".join(found),
            pytrace=False,
        )
    return outcome
