"""A ratio of two times, its spread, and whether it reaches its goal.

Two ways are timed in turns. Each repetition gives a ratio, and the median of
these is not the ratio of the medians::

    repetition        0     1     2
    one way, s        2     8     9      median 8
    another, s        1     2     9      median 2
    ratio           0.5  0.25     1      median 0.5, from 0.25 to 1

Where a goal lies within the spread, the ratio does not tell whether it was
reached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

Formula = Callable[[Mapping[str, float]], float]


class Spread(NamedTuple):
    """The median of a ratio over repetitions, its lowest and highest."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Ratio:
    """A ratio that is watched, and its goal.

    ``of`` makes it of the seconds that each way took in one repetition.
    Without a goal it may be anything.
    """

    name: str
    of: Formula
    at_most: float = inf
    at_least: float = 0.0

    def spread(self, seconds: Mapping[str, Sequence[float]]) -> Spread:
        """Return the ratio over all repetitions."""
        repetitions = [
            dict(zip(seconds, found))
            for found in zip(*seconds.values(), strict=True)
        ]
        found = [self.of(each) for each in repetitions]
        return Spread(median(found), min(found), max(found))

    def verdict(self, found: Spread) -> str:
        """Return whether all repetitions reach the goal; "" without one."""
        if (self.at_least, self.at_most) == (0.0, inf):
            return ""
        goal = f"≤ {self.at_most:g}" if self.at_most < inf else ""
        goal = goal or f"≥ {self.at_least:g}"
        reached = [
            self.at_least <= x <= self.at_most for x in (found.low, found.high)
        ]
        if all(reached):
            return f"goal {goal}: reached"
        hidden = any(reached)
        return f"goal {goal}: {'hidden by the spread' if hidden else 'missed'}"


def over(one: str, other: str) -> Formula:
    """Return how to divide the time of one way by that of another."""
    return lambda seconds: seconds[one] / seconds[other]


def added(one: str, other: str, plain: str) -> Formula:
    """Return how to divide what one way adds to a plain one by another's."""
    return lambda seconds: (
        (seconds[one] - seconds[plain]) / (seconds[other] - seconds[plain])
    )
