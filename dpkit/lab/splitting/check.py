"""The checks of the exercises on the three ways to split."""

from itertools import product
from math import ceil

from dpkit.lab.common.verdict import Answer, require_same
from dpkit.theory.splits import boundary

GIGABYTE = 10**9


def check_rows_to_hide(answer: Answer) -> None:
    """By a star and by parts, for several devices and links."""
    for k, ratio, by_parts in product((2, 3, 8), (99.0, 1105.0), (0, 1)):
        expected = boundary("data", k, depth=1, ratio=ratio)
        expected /= k if by_parts else 1
        case = f"{k} devices, {ratio:.0f} operations a byte"
        case += f", by_parts={bool(by_parts)}"
        found = answer(k, ratio, bool(by_parts))
        require_same(found, expected, case, ".0f", near=0.02)


def check_least_devices(answer: Answer) -> None:
    """Where it fits, where it does not, and where it just does."""
    sizes = (10**6, 10**9, 10**9 + 1, 70 * 10**9)
    for way, parameters in product(("data", "network", "layer"), sizes):
        needed = 16 * parameters
        expected: int | None = ceil(needed / (16 * GIGABYTE))
        if way == "data" and needed > 16 * GIGABYTE:
            expected = None
        case = f"{way}, {parameters:,} parameters, 16 GB"
        require_same(answer(way, parameters, 16 * GIGABYTE), expected, case)
