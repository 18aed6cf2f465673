"""The check of the exercise on overlap: what it lets pass, and not."""

import pytest

from dpbook.common.checks import failure


def never_reduced(parallel, loss, batches):
    with parallel.no_sync():
        for X, y in batches:
            parallel.forward_backward(
                X, y, lambda out, y: loss(out, y) / len(batches)
            )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (never_reduced, "away from the mean"),
        (lambda parallel, loss, batches: None, "has no gradient"),
    ],
)
def test_wrong_steps(answer, why):
    answer.__name__ = "accumulated_step"
    assert why in failure(answer)
