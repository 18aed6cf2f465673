"""Checks of the exercises on what other frameworks decide."""

from math import ceil

from dpbook.exercises.verdict import Answer, require_reference

CASES = ((257, 1), (8, 4), (257, 5), (6, 4), (2, 3), (1, 4), (9, 8))
CASE = "{0} rows on {1} devices"


def _shards(num_rows: int, k: int) -> list[int]:
    """Return the rows of each device that has any: all but the last alike."""
    size = ceil(num_rows / k)
    begins = range(0, num_rows, size)
    return [min(size, num_rows - begin) for begin in begins]


def check_row_weights(answer: Answer) -> None:
    """Even shards, a short one, and devices without rows."""

    def weights(num_rows: int, k: int) -> list[float]:
        shards = _shards(num_rows, k)
        return [1 / (rows * k) for rows in shards for _ in range(rows)]

    few = [case for case in CASES if case[0] < 10]
    require_reference(answer, weights, few, CASE)


def check_idle_devices(answer: Answer) -> None:
    """Batches that fill all devices, and batches that do not."""

    def idle(num_rows: int, k: int) -> int:
        return k - len(_shards(num_rows, k))

    require_reference(answer, idle, CASES, CASE)
