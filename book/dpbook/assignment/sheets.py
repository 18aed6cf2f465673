"""The exercises of a sheet: what each asks, and how it is checked.

A sheet has a number, its seed. It changes two kinds of exercises:

- in ``ASKED``, whose answer is a decision: other numbers stand in the text
- in ``DRAWN``, whose answer is a program: the check has further cases

All others are on every sheet as they are in the book.
"""

from collections.abc import Callable
from functools import cache, partial
from random import Random

from dpbook.assignment.asked import Asked, Draw, passes
from dpbook.assignment.buckets import draw_cut_buckets
from dpbook.assignment.drawn import DRAWN, more_cases
from dpbook.assignment.networks import draw_three_designs
from dpbook.assignment.shards import (
    draw_form_and_devices,
    draw_gathering_order,
    one_ahead,
    orders,
)
from dpbook.assignment.timelines import draw_read_backward, draw_read_chart
from dpbook.common.checks import all_checks
from dpbook.exercises.sharding import check_gathering_order
from dpbook.exercises.verdict import Answer

ASKED: dict[str, Draw] = {
    "cut_buckets": draw_cut_buckets,
    "form_and_devices": draw_form_and_devices,
    "gathering_order": draw_gathering_order,
    "read_backward": draw_read_backward,
    "read_chart": draw_read_chart,
    "three_designs": draw_three_designs,
}
# What the stubs and the solutions in the book return.
GIVEN: dict[str, list[object]] = {
    "cut_buckets": [[5, 5], [1, 1, 2, 2, 3, 1]],
    "form_and_devices": [(3, 16), (2, 6)],
    "gathering_order": [
        one_ahead(6),
        *(o for o in orders(6) if passes(check_gathering_order, o)),
    ],
    "read_backward": [(0, 4, 1), (1, 5, 0)],
    "read_chart": [(5, 0.5, "2F4"), (3, 1 / 3, "1B2")],
    "three_designs": [
        [("data", 2), ("data", 2), ("data", 2)],
        [("data", 8), ("layer", 4), ("network", 4)],
    ],
}


@cache
def asked(name: str, seed: int) -> Asked:
    """Return what a sheet asks of an exercise in ``ASKED``.

    Numbers for which the stub or the solution in the book is right are drawn
    again.

    Args:
        name: The name of the exercise.
        seed: The number of the sheet.

    Example:
        >>> asked("form_and_devices", 7).phrases["keep 6 GB"]
        'keep 17 GB'
    """
    random = _random(name, seed)
    while True:
        found = ASKED[name](random)
        if not any(passes(found.check, given) for given in GIVEN[name]):
            return found


def _random(name: str, seed: int) -> Random:
    """Return what draws the numbers of an exercise on a sheet."""
    return Random(f"{name} on sheet {seed}")


def check_of(name: str, seed: int | None) -> Callable[[Answer], None]:
    """Return the check of an exercise on a sheet.

    Args:
        name: The name of the exercise.
        seed: The number of the sheet; None: the check is that of the book.
    """
    check = all_checks()[name]
    if seed is None:
        return check
    if name in ASKED:
        return asked(name, seed).check
    if name in DRAWN:
        cases = more_cases(name, _random(name, seed))
        return partial(check, more=cases)  # type: ignore[call-arg]
    return check
