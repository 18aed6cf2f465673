"""Checks of the exercises on pipelines."""

from collections.abc import Sequence
from itertools import product

from dpkit.theory.exercises.verdict import Answer, require
from dpkit.theory.pipelines.actions import Action, most_in_flight
from dpkit.theory.pipelines.bubble import idle_of_total, in_flight
from dpkit.theory.pipelines.check import check
from dpkit.theory.pipelines.replay import times


def check_micro_batches_needed(answer: Answer) -> None:
    """The least number with which the bubble is small enough."""
    for p, share in product((1, 2, 4, 9), (0.01, 0.1, 0.25, 0.5, 0.9)):
        found, case = answer(p, share), f"{p} stages, share {share}"
        _require_count(found, case)
        idle = idle_of_total(p, found)
        words = f"devices are idle for {idle:.4f} of the total time"
        require(idle <= share, f"{case}: with {found} micro-batches, {words}")
        fewer = idle_of_total(p, found - 1) if found > 1 else 1.0
        words = f"{case}: {found - 1} micro-batches are enough, not {found}"
        require(fewer > share, words)


def _require_count(found: object, case: str) -> None:
    right = isinstance(found, int) and found >= 1
    require(right, f"{case}: it returned {found!r}")


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
        kept, limit = most_in_flight(row), in_flight("1f1b", p, m, r)
        words = f"keeps {kept} micro-batches, more than {limit}"
        require(kept <= limit, f"{case}: stage {r} {words}")


def check_best_count(answer: Answer) -> None:
    """The integer for which the step is shortest."""
    steps = (1.0, 1e-3), (1.0, 0.3), (2e-3, 1e-2), (5.0, 0.7)
    for p, (work, cost) in product((1, 2, 4, 16), steps):
        found = answer(p, work, cost)
        case = f"{p} stages, work {work} s, cost {cost} s"
        _require_count(found, case)
        seconds = [(m + p - 1) * (work / m + cost) for m in range(1, 1000)]
        best = seconds.index(min(seconds)) + 1
        words = f"{case}: {best} micro-batches are better than {found}"
        require(abs(seconds[found - 1] - min(seconds)) < 1e-12, words)
