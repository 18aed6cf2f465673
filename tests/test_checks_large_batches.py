"""The checks of the exercises on large batches: what passes, what not."""

import pytest
from torch.optim.lr_scheduler import ConstantLR, LinearLR

from dpkit.lab.common.checks import failure
from dpkit.lab.large_batches.results import fit, steps_needed


def named(name, answer):
    answer.__name__ = name
    return answer


def fastest(seconds, b, least, critical):
    return min(
        seconds,
        key=lambda k: seconds[k] * steps_needed(b * k, least, critical),
    )


RIGHT = {
    "warm_scheduler": lambda optimizer, k, n: LinearLR(
        optimizer, 1 / k, total_iters=n
    ),
    "steps_behind": lambda k, n: (k - 1) * (n + 1) / (2 * k),
    "critical_batch": lambda a, sa, b, sb: fit([a, b], [sa, sb]),
    "fastest_count": fastest,
}

WRONG = {
    "warm_scheduler": [
        (lambda o, k, n: None, "returned None"),
        (lambda o, k, n: ConstantLR(o, 1 / k, n), "step 1 has the rate"),
        (lambda o, k, n: LinearLR(o, total_iters=n), "step 0 has the rate"),
        (lambda o, k, n: LinearLR(o, 1 / k), "has the rate"),
        (lambda o, k, n: LinearLR(o, 1 / k, k, n), "raised"),
    ],
    "steps_behind": [
        (lambda k, n: None, "returned None"),
        (lambda k, n: (k - 1) * n / (2 * k), "k = 4, W = 10"),
        (lambda k, n: n / 2, "k = 4, W = 10"),
        (lambda k, n: (k - 1) * (n + 1) / 2, "k = 4, W = 10"),
        (lambda k, n: n - n / k, "k = 4, W = 10"),
    ],
    "critical_batch": [
        (lambda a, sa, b, sb: None, "returned None"),
        (lambda a, sa, b, sb: (sb, a), "expected (100.0, 64.0)"),
        (lambda a, sa, b, sb: fit([a, b], [sa, sb])[::-1], "expected"),
        (lambda a, sa, b, sb: sa / sb, "expected"),
    ],
    "fastest_count": [
        (lambda s, b, least, c: None, "returned None"),
        (lambda s, b, least, c: max(s, key=lambda k: k / s[k]), "expected 4"),
        (lambda s, b, least, c: max(s), "expected 1"),
        (lambda s, b, least, c: min(s), "expected 4"),
        # The batch is k·b, not k.
        (lambda s, b, least, c: fastest(s, 1, least, c), "expected 4"),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers(name):
    assert failure(named(name, RIGHT[name])) is None


@pytest.mark.parametrize(
    ("name", "answer", "why"),
    [(name, *case) for name, cases in WRONG.items() for case in cases],
)
def test_wrong_answers(name, answer, why):
    said = failure(named(name, answer))
    assert said is not None
    assert why in said
