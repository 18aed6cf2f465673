"""Elsewhere: the check tells wrong from right."""

import pytest
import torch

from dpbook.common.checks import failure


def padded(X, y, k, weight=0.0, more=0):
    missing = -len(X) % k + more
    weights = torch.cat([torch.ones(len(X)), torch.full((missing,), weight)])
    X, y = (torch.cat([t, t.new_zeros(missing, *t.shape[1:])]) for t in (X, y))
    return X, y, weights


def weights_forgotten(X, y, k):
    return padded(X, y, k, weight=1.0)


def too_many(X, y, k):
    return padded(X, y, k, more=k)


def in_front(X, y, k):
    return tuple(t.flip(0) for t in padded(X, y, k))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (padded, None),
        (lambda X, y, k: None, "not three tensors"),
        (weights_forgotten, "257 rows for 2 devices: the weighted mean"),
        (too_many, "expected 8 of each"),
        (in_front, "not those of the batch"),
    ],
)
def test_pad_and_weigh(answer, why):
    named = type("Named", (), {"__call__": staticmethod(answer)})()
    named.__name__ = "pad_and_weigh"
    found = failure(named)
    assert found is None if why is None else why in found
