"""The checks of the exercises on overlap: what they let pass, and not."""

import pytest

from dpkit.lab.common.checks import check
from dpkit.theory.overlap import bucket_ends


def verdict(answer, capsys):
    check(answer)
    return capsys.readouterr().out


def named(name, answer):
    answer.__name__ = name
    return answer


WRONG = {
    "ends_of_buckets": [
        lambda ready, costs: [r + c for r, c in zip(ready, costs)],
        lambda ready, costs: [sum(costs[: i + 1]) for i in range(len(costs))],
        lambda ready, costs: bucket_ends(ready, costs)[-1:],
        lambda ready, costs: None,
    ],
    "fill_buckets": [
        lambda sizes, room: [[i] for i in reversed(range(len(sizes)))],
        lambda sizes, room: [list(reversed(range(len(sizes))))],
        lambda sizes, room: [[i] for i in range(len(sizes))],
        lambda sizes, room: None,
    ],
    "server_seconds": [
        lambda p, s, n, alpha, beta: 2 * p * (alpha + n / s * beta),
        lambda p, s, n, alpha, beta: 2 * p * (alpha + n * beta),
        lambda p, s, n, alpha, beta: max(p, s) * (alpha + n / s * beta),
        lambda p, s, n, alpha, beta: None,
    ],
}


@pytest.mark.parametrize(
    ("name", "answer"),
    [(name, answer) for name, answers in WRONG.items() for answer in answers],
)
def test_wrong_answers(capsys, name, answer):
    assert "not yet" in verdict(named(name, answer), capsys)


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
def test_wrong_steps(capsys, answer, why):
    text = verdict(named("accumulated_step", answer), capsys)
    assert "not yet" in text
    assert why in text
