"""A test in whose process the check finds something fails by it."""

import os
from collections.abc import Iterator

import pytest

from cuda_double.findings import findings


def pytest_sessionstart() -> None:
    """End where torch is not doubled: tests of GPUs would be skipped."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return
    import torch

    count = torch.cuda.device_count()
    if str(count) != os.environ["CUDA_DOUBLE"]:
        pytest.exit(f"torch is not doubled (GPUs: {count})", returncode=4)


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
