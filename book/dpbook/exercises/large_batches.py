"""Checks of the exercises on large batches."""

from collections.abc import Sequence

from dpbook.exercises.verdict import (
    Answer,
    require_reference,
    require_same,
)


def check_rate_of_step(
    answer: Answer, more: Sequence[tuple[int, float, int, int, int]] = ()
) -> None:
    """The rates of a run: a ramp, the full rate, and a tenth of it."""

    def rate(step: int, lr: float, k: int, warmup: int, slow: int) -> float:
        if step < warmup:
            return lr + (k - 1) * lr * step / warmup
        return k * lr * (1.0 if step < slow else 0.1)

    steps = (0, 1, 3, 4, 5, 15, 16, 19, 20, 30)
    cases = [
        (t, lr, k, 4, 16) for t in steps for lr, k in ((0.1, 4), (1.0, 8))
    ]
    cases += more
    case_format = (
        "step {0}, rate {1}, k = {2}, {3} steps of warm-up, slow from {4}"
    )
    require_reference(answer, rate, cases, case_format, form="g")


def check_critical_batch(
    answer: Answer,
    more: Sequence[tuple[tuple[int, int], tuple[float, float]]] = (),
) -> None:
    """Two batches on each side of the critical one, in either order."""
    for (small, large), expected in (
        ((16, 256), (100.0, 64.0)),
        ((512, 32), (40.0, 128.0)),
        ((8, 16), (250.0, 2048.0)),
        *more,
    ):
        least, critical = expected
        few, many = (least * (1 + critical / b) for b in (small, large))
        case = f"{small} rows take {few:g} steps and {large} take {many:g}"
        require_same(answer(small, few, large, many), expected, case)


def check_fastest_count(answer: Answer) -> None:
    """Where one device is best, where many are, and in between."""
    for per_device, critical, expected in (
        (1e-3, 4, 1),
        (2e-4, 64, 4),
        (1e-4, 256, 16),
        (1e-6, 64, 64),
    ):
        counts = (1, 2, 4, 8, 16, 32, 64)
        seconds = {k: 1e-3 + per_device * (k - 1) for k in counts}
        more = f"1 ms and {1e3 * per_device:g} ms for each further device"
        case = f"a step takes {more}, b = 16, the critical batch is {critical}"
        require_same(answer(seconds, 16, 100, critical), expected, case)
