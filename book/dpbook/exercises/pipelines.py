"""Checks of the exercises on pipelines."""

from collections.abc import Sequence
from itertools import product

from dpbook.exercises.verdict import Answer, require, same
from dpkit.schedules import Action, in_flight, most_in_flight, parse, times
from dpkit.schedules.check import check

# 1F1B, as an engine ran it. Device 1 was late once, at 1B2: 2B2, which it
# needs, ended with tick 7, and it began in tick 9. Others waited for it.
CHART = """
0F0 0F1 0F2 .   .   0B0 0F3 0B1 0F4 .   0B2 .   0B3 .   0B4
.   1F0 1F1 .   1B0 1F2 1B1 1F3 .   1B2 1F4 1B3 .   1B4 .
.   .   2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 .   2F4 2B4 .   .
"""


def check_read_chart(
    answer: Answer, chart: str = CHART, planted: str = "1B2"
) -> None:
    """What device 0 keeps, the idle share of the total, who was late."""
    found = answer()
    why = f"it returned {found!r}, not a number, a share and an action"
    require(isinstance(found, tuple) and len(found) == 3, why)
    kept, idle, late = found
    why = f"device 0 does not keep {kept!r} micro-batches at the most"
    require(kept == most_in_flight(parse(chart)[0]), why)
    cells = chart.split()
    share = cells.count(".") / len(cells)
    why = f"the devices are not idle for {idle!r} of the total time"
    require(same(idle, share, near=0.01), why)
    require(late == planted, f"{late!r} began as soon as it could")


def check_one_forward_one_backward(answer: Answer) -> None:
    """Right, fast and frugal, for all sizes."""
    for p in range(1, 6):
        for m in range(1, 10):
            _check_schedule(answer(p, m), p, m)


def _check_schedule(rows: Sequence[Sequence[str]], p: int, m: int) -> None:
    case = f"{p} stages, {m} micro-batches"
    schedule = [[Action.parse(text) for text in row] for row in rows]
    try:
        check(schedule, p, m)
    except ValueError as error:
        require(False, f"{case}: {error}")
    step = max(end for _, end in times(schedule, lambda action: 1).values())
    least = 2 * (m + p - 1)
    require(step == least, f"{case}: it takes {step} ticks, where {least} do")
    for r, row in enumerate(schedule):
        kept = most_in_flight(row)
        limit = in_flight("1f1b", p, m, rank=r)
        why = f"keeps {kept} micro-batches, more than {limit}"
        require(kept <= limit, f"{case}: stage {r} {why}")


def check_best_count(
    answer: Answer, more: Sequence[tuple[float, float]] = ()
) -> None:
    """The integer for which the step is shortest."""
    steps = [(1.0, 1e-3), (1.0, 0.3), (2e-3, 1e-2), (5.0, 0.7)]
    steps += [(2.2, 1.0), *more]  # 2 stages: the root is 1.48, 2 are best
    for p, (work, cost) in product((1, 2, 4, 16), steps):
        found = answer(p, work, cost)
        case = f"{p} stages, work {work} s, cost {cost} s"
        why = "not a whole number of at least 1"
        right = isinstance(found, int) and found >= 1
        require(right, f"{case}: it returned {found!r}, {why}")
        seconds = [(m + p - 1) * (work / m + cost) for m in range(1, 1000)]
        best = seconds.index(min(seconds)) + 1
        why = f"{case}: {best} micro-batches are better than {found}"
        require(abs(seconds[found - 1] - min(seconds)) < 1e-12, why)
