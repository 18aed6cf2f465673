"""The checks of the exercises on the three ways to split."""

from itertools import product
from math import ceil

from dpkit.lab.common.verdict import Answer, require_reference
from dpkit.theory.splits import boundary


def check_rows_to_hide(answer: Answer) -> None:
    """By a star and by parts, for several devices and links."""

    def rows(k: int, ratio: float, by_parts: bool) -> float:
        expected = boundary("data", k, depth=1, ratio=ratio)
        return expected / k if by_parts else expected

    cases = product((2, 3, 8), (99.0, 1105.0), (False, True))
    words = "{0} devices, {1:.0f} operations a byte, by_parts={2}"
    require_reference(answer, rows, cases, words, ".0f", near=0.02)


def check_least_devices(answer: Answer) -> None:
    """Where it fits, where it does not, and where it just does."""

    def least(way: str, num_parameters: int, memory_bytes: int) -> int | None:
        needed = ceil(16 * num_parameters / memory_bytes)
        return None if way == "data" and needed > 1 else needed

    sizes = (10**6, 10**9, 10**9 + 1, 70 * 10**9)
    cases = product(("data", "network", "layer"), sizes, [16 * 10**9])
    words = "{0}, {1:,} parameters, 16 GB"
    require_reference(answer, least, cases, words)
