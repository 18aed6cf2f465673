"""New chapter: the check tells wrong from right."""

import pytest

from dpbook.common.checks import failure
from dpkit.sim.hardware import operation_seconds


def rate(n, accelerator):
    flops = 2 * n**3
    num_bytes = 3 * n**2 * 4
    return flops / operation_seconds(
        accelerator, flops=flops, num_bytes=num_bytes
    )


def peak(n, accelerator):
    return accelerator.flops_per_second["float32"]


def seconds(n, accelerator):
    return 2 * n**3 / rate(n, accelerator)


def in_gigaflops(n, accelerator):
    return rate(n, accelerator) / 1e9


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (rate, None),
        (lambda n, accelerator: None, "it returned None"),
        (peak, "k80, n = 10"),
        (seconds, "expected"),
        (in_gigaflops, "expected"),
    ],
)
def test_new_chapter_rate(answer, why):
    answer.__name__ = "new_chapter_rate"
    found = failure(answer)
    assert found is None if why is None else why in found
