"""Logarithmic axes in plain numbers.

The limits of the axis are set before, or what it shows is drawn.
"""

import math

from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator


def doublings(axis: Axis, at_most: int = 8) -> None:
    """Label an axis at powers of two, at every n-th if they are too many."""
    low, high = sorted(axis.get_view_interval())
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    # From 2^-6 to 2^5 there are 12 powers: 8 labels allow every second.
    each = -(-(last - first + 1) // at_most)
    powers = [p for p in range(first, last + 1) if p % each == 0]
    axis.set_major_locator(FixedLocator([2.0**p for p in powers]))
    _plain(axis)


def decades(axis: Axis) -> None:
    """Label an axis at 1, 2 and 5, or at powers of ten where it is long."""
    low, high = sorted(axis.get_view_interval())
    subs = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
    axis.set_major_locator(LogLocator(10, subs))
    _plain(axis)


def _plain(axis: Axis) -> None:
    axis.set_major_formatter(
        lambda value, _: f"{value:.0f}" if value >= 1 else f"{value:.3g}"
    )
    axis.set_minor_locator(NullLocator())
