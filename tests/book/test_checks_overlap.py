"""The check of the exercise on overlap: what it lets pass, and not."""

import pytest

from dpbook.common.checks import failure


def every_batch(parallel, loss, batches):
    """Reduce after each batch: right, but the messages of many steps."""
    for X, y in batches:
        parallel.forward_backward(
            X, y, lambda out, y: loss(out, y) / len(batches)
        )


def sum_of_means(parallel, loss, batches):
    with parallel.no_sync():
        for X, y in batches[:-1]:
            parallel.forward_backward(X, y, loss)
    parallel.forward_backward(*batches[-1], loss)


def never_reduced(parallel, loss, batches):
    with parallel.no_sync():
        for X, y in batches:
            parallel.forward_backward(
                X, y, lambda out, y: loss(out, y) / len(batches)
            )


def last_batch_alone(parallel, loss, batches):
    parallel.forward_backward(*batches[-1], loss)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (every_batch, "messages, where"),
        (sum_of_means, "away from the mean"),
        (never_reduced, "away from the mean"),
        (last_batch_alone, "away from the mean"),
        (lambda parallel, loss, batches: None, "has no gradient"),
    ],
)
def test_wrong_steps(answer, why):
    answer.__name__ = "accumulated_step"
    assert why in failure(answer)
