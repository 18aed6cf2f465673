"""Checks of the exercises on large batches."""

from dpkit.theory.exercises.verdict import (
    Answer,
    require_reference,
    require_same,
)


def check_steps_behind(answer: Answer) -> None:
    """Warm-ups of several lengths, one of them without a rise."""

    def steps_behind(k: int, W: int) -> float:
        return sum(1 - (1 + (k - 1) * t / W) / k for t in range(W))

    cases = (4, 10), (8, 128), (2, 1), (1, 7)
    words = "k = {0}, W = {1}"
    require_reference(answer, steps_behind, cases, words, "g")


def check_critical_batch(answer: Answer) -> None:
    """Two batches on each side of the critical one, in either order."""
    for (small, large), expected in (
        ((16, 256), (100.0, 64.0)),
        ((512, 32), (40.0, 128.0)),
        ((8, 16), (250.0, 2048.0)),
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
