"""The checks of the exercises on pipelines tell wrong answers from right."""

import math

import pytest

from dpkit.lab.common.checks import failure
from dpkit.theory.pipelines.bubble import idle_of_total
from dpkit.theory.pipelines.schedules import (
    gpipe,
    naive,
    one_f_one_b,
    zero_bubble_h1,
)


def named(name, answer):
    answer.__name__ = name
    return answer


def as_text(make):
    return lambda p, m: [[str(a) for a in row] for row in make(p, m)]


def needed(num_stages, share):
    m = 1
    while idle_of_total(num_stages, m) > share:
        m += 1
    return m


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda p, share: needed(p, share) + 1, "are enough, not"),
        (lambda p, share: max(needed(p, share) - 1, 1), "devices are idle"),
        (lambda p, share: math.ceil((p - 1) / share) or 1, "are enough"),
        (lambda p, share: float(needed(p, share)), "it returned 1.0"),
    ],
)
def test_wrong_numbers_of_micro_batches(answer, why):
    """The third takes the share of the ideal time."""
    assert why in failure(named("micro_batches_needed", answer))


def test_the_right_number_of_micro_batches():
    assert failure(named("micro_batches_needed", needed)) is None


def short_warm_up(p, m):
    return [
        [
            *(f"{r}F{i}" for i in range(min(r + 1, m))),
            *(f"{r}{k}{i + (r + 1) * (k == 'F')}" for i in range(m)
              for k in "BF" if i + (r + 1) * (k == "F") < m),
        ]
        for r in range(p)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (as_text(gpipe), "keeps 2 micro-batches, more than 1"),
        (as_text(naive), "ticks, where"),
        (as_text(zero_bubble_h1), "it takes 3 ticks, where 2 do"),
        (short_warm_up, "neither goes on"),
        (lambda p, m: as_text(one_f_one_b)(p, m)[:-1] or [[]], "missing"),
    ],
)
def test_wrong_schedules(answer, why):
    assert why in failure(named("one_forward_one_backward", answer))


def test_the_right_schedule():
    answer = named("one_forward_one_backward", as_text(one_f_one_b))
    assert failure(answer) is None


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


def step(m, p, w, c):
    return (m + p - 1) * (w / m + c)


def best(p, w, c):
    return min(range(1, 1000), key=lambda m: step(m, p, w, c))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda p, w, c: best(p, w, c) + 1, "are better than 2"),
        (lambda p, w, c: max(round((w / c) ** 0.5), 1), "are better than 32"),
        (lambda p, w, c: ((p - 1) * w / c) ** 0.5, "it returned 0.0"),
        (lambda p, w, c: int(((p - 1) * w / c) ** 0.5), "it returned 0"),
    ],
)
def test_wrong_counts(answer, why):
    assert why in failure(named("best_count", answer))


def test_the_right_count():
    assert failure(named("best_count", best)) is None
