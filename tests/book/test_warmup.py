"""How the learning rate begins, and the schedule of the experiment."""

import pytest

from dpbook.large_batches.runs import (
    RECIPE,
    WARMUPS,
    constant_warmup,
    gradual_warmup,
    no_warmup,
    schedule,
)


@pytest.mark.parametrize("warmup", WARMUPS.values())
def test_all_end_at_the_same_rate(warmup):
    assert [warmup(step, 5, 1.0, 7.0) for step in (5, 6, 500)] == [7.0] * 3


def test_they_begin_differently():
    begins = [w(0, 5, 1.0, 7.0) for w in (no_warmup, constant_warmup)]
    assert begins == [7.0, 1.0]
    assert constant_warmup(4, 5, 1.0, 7.0) == 1.0


def test_gradual_rises_by_equal_amounts():
    rates = [gradual_warmup(step, 4, 1.0, 7.0) for step in range(5)]
    assert rates == [1.0, 2.5, 4.0, 5.5, 7.0]


@pytest.mark.parametrize("k", [1, 8, 64])
@pytest.mark.parametrize("warmup", WARMUPS)
def test_schedule_by_the_epoch(k, warmup):
    """Warm after two epochs, a tenth in the last two, for every k."""
    per_epoch = RECIPE.steps_per_epoch(k)
    rate = schedule(k, k * RECIPE.lr, warmup)
    assert rate(2 * per_epoch) == pytest.approx(k * RECIPE.lr)
    assert rate(8 * per_epoch - 1) == pytest.approx(k * RECIPE.lr)
    assert rate(8 * per_epoch) == pytest.approx(k * RECIPE.lr / 10)
    begin = k * RECIPE.lr if warmup == "none" else RECIPE.lr
    assert rate(0) == pytest.approx(begin)
    if k > 1 and warmup != "none":
        assert rate(2 * per_epoch - 1) < k * RECIPE.lr


def test_steps_of_an_epoch():
    assert [RECIPE.steps_per_epoch(k) for k in (1, 2, 64)] == [512, 256, 8]
