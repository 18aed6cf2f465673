"""Steps against the batch: the law, and its fit."""

import pytest

from dpkit.lab.large_batches.critical_batch import fit, steps_needed


def test_both_ends_of_the_law():
    assert steps_needed(1e9, 100, 64) == pytest.approx(100)
    small = [steps_needed(batch, 100, 64) for batch in (0.01, 0.02)]
    assert small[0] / small[1] == pytest.approx(2, rel=1e-3)
    assert steps_needed(64, 100, 64) == 200


@pytest.mark.parametrize("critical", [10.0, 300.0])
def test_fit_finds_what_is_exact(critical):
    batches = [2**i for i in range(4, 12)]
    steps = [steps_needed(b, 150, critical) for b in batches]
    assert fit(batches, steps) == pytest.approx((150, critical))


def test_fit_has_the_least_relative_error():
    batches, steps = [16, 64, 256, 1024], [2100.0, 640.0, 260.0, 150.0]

    def loss(least, critical):
        return sum(
            (steps_needed(b, least, critical) / s - 1) ** 2
            for b, s in zip(batches, steps)
        )

    least, critical = fit(batches, steps)
    for near in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
        beside = least * near[0], critical * near[1]
        assert loss(least, critical) < loss(*beside)


@pytest.mark.parametrize("batches", [[10], [16, 16]])
def test_two_sizes_are_needed(batches):
    with pytest.raises(ValueError, match=r"two numbers \(batches: \[1"):
        fit(batches, [3.3] * len(batches))
