"""Fit times that grow with a size: seconds = fixed + size / rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpkit.least_squares import fit_two

PASSES = 10  # the weights no longer change by then


@dataclass(frozen=True)
class Line:
    """Seconds that grow with a size: ``fixed + size / rate``."""

    fixed: float
    rate: float

    def seconds(self, size: float) -> float:
        """Return the seconds of a size."""
        return self.fixed + size / self.rate


def fit_line(samples: Sequence[tuple[float, float]]) -> Line:
    """Fit seconds = fixed + size / rate, so that the logarithms agree best.

    Short times count as much as long ones, and half of a time is as wrong as
    twice the time. It is a weighted least squares, a few times over, with
    weights from the fit before.

    Args:
        samples: Pairs of a size and the seconds that it took.

    Raises:
        ValueError: the times do not grow with the sizes.
    """
    fitted = [seconds for _, seconds in samples]
    for _ in range(PASSES):
        weights = [_weight(p, t) for p, (_, t) in zip(fitted, samples)]
        line = _least_squares(samples, weights)
        fitted = [line.seconds(size) for size, _ in samples]
    return line


def _weight(fitted: float, measured: float) -> float:
    """Return the weight that makes squares grow as those of logarithms do."""
    # w · (fitted − measured) = log(fitted / measured) / fitted, the slope of
    # half of log(fitted / measured)²: both are least at once.
    error = fitted - measured
    if abs(error) < 1e-9 * measured:
        return 1 / measured**2
    return math.log(fitted / measured) / (fitted * error)


def _least_squares(
    samples: Sequence[tuple[float, float]], weights: Sequence[float]
) -> Line:
    """Fit seconds = fixed + slope · size, where fixed is not negative."""
    unit = max(size for size, _ in samples)
    xs = [size / unit for size, _ in samples]
    times = [seconds for _, seconds in samples]
    fixed = -1.0
    if min(xs) < max(xs):
        fixed, slope = fit_two(
            [1.0] * len(xs), xs, totals=times, weights=weights
        )
    if fixed < 0:  # the best line through zero
        fixed = 0.0
        above = sum(w * x * t for w, x, t in zip(weights, xs, times))
        slope = above / sum(w * x * x for w, x in zip(weights, xs))
    if not slope > 0:
        raise ValueError(
            f"times do not grow with sizes (samples: {list(samples)}); "
            "measure again when nothing else runs"
        )
    return Line(fixed, unit / slope)
