"""The checks of the exercises on the three ways to split."""

from __future__ import annotations

from math import ceil

from dpkit.lab.common.verdict import Answer, require
from dpkit.theory.splits import boundary


def check_rows_to_hide(answer: Answer) -> None:
    """By a star and by parts, for several devices and links."""
    for k in (2, 3, 8):
        for ratio in (99.0, 1105.0):
            for by_parts in (False, True):
                expected = boundary("data", k, depth=1, ratio=ratio)
                expected /= k if by_parts else 1
                found = answer(k, ratio, by_parts)
                require(
                    isinstance(found, (int, float))
                    and abs(found / expected - 1) < 0.02,
                    f"{k} devices, {ratio:.0f} operations a byte, "
                    f"by_parts={by_parts}: it returned {found!r}, expected "
                    f"{expected:.0f}",
                )


def check_least_devices(answer: Answer) -> None:
    """Where it fits, where it does not, and where it just does."""
    gigabyte = 10**9
    for way in ("data", "network", "layer"):
        for parameters in (10**6, 10**9, 10**9 + 1, 70 * 10**9):
            needed = 16 * parameters
            expected: int | None = ceil(needed / (16 * gigabyte))
            if way == "data" and needed > 16 * gigabyte:
                expected = None
            found = answer(way, parameters, 16 * gigabyte)
            require(
                found == expected,
                f"{way}, {parameters:,} parameters, 16 GB: it returned "
                f"{found!r}, expected {expected}",
            )
