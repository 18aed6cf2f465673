"""The check of the exercise on large batches: what passes, what not."""

import pytest
from torch.optim.lr_scheduler import ConstantLR, LinearLR

from dpbook.common.checks import failure


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda o, k, n: LinearLR(o, 1 / k, total_iters=n), None),
        (lambda o, k, n: None, "returned None"),
        (lambda o, k, n: ConstantLR(o, 1 / k, n), "step 1 has the rate"),
        (lambda o, k, n: LinearLR(o, total_iters=n), "step 0 has the rate"),
        (lambda o, k, n: LinearLR(o, 1 / k), "has the rate"),
        (lambda o, k, n: LinearLR(o, 1 / k, k, n), "raised"),
    ],
)
def test_warm_scheduler(answer, why):
    answer.__name__ = "warm_scheduler"
    found = failure(answer)
    assert found is None if why is None else why in found
