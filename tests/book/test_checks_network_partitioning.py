"""The check of the exercise on micro-batches tells wrong from right."""

import pytest

from dpbook.common.checks import failure


def accumulated(weigh, chunks="tensor_split"):
    def accumulate(net, loss_fn, X, y, m):
        total = 0.0
        parts = getattr(X, chunks)(m), getattr(y, chunks)(m)
        for X_part, y_part in zip(*parts):
            loss = loss_fn(net(X_part), y_part) * weigh(y_part, y, m)
            loss.backward()
            total += loss.item()
        return total

    return accumulate


@pytest.mark.parametrize(
    ("weigh", "why"),
    [
        (lambda part, y, m: 1.0, "times as long"),
        (lambda part, y, m: 1 / m, "7 examples in 2 micro-batches: a grad"),
    ],
)
def test_wrong_weights(weigh, why):
    assert why in failure(accumulated(weigh))


def test_the_right_weights():
    assert failure(accumulated(lambda part, y, m: len(part) / len(y))) is None


def test_a_loss_that_is_not_returned():
    def accumulate(*args):
        accumulated(lambda part, y, m: len(part) / len(y))(*args)
        return 0.0

    assert "it returned 0.0, the loss is" in failure(accumulate)
