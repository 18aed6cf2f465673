"""Checks of the exercises on splitting layers, networks and batches."""

from itertools import product
from math import ceil

from dpkit.theory.exercises.verdict import Answer, require_reference
from dpkit.theory.splits import boundary


def check_least_width(answer: Answer) -> None:
    """The width from the constants, for both ways to allreduce."""

    def width(flops: float, num_bytes: float, k: int, parts: bool) -> float:
        return flops / num_bytes / 3 * (1 if parts else k)

    machines = (12e12, 10e9, 2), (15e12, 3e9, 5)
    cases = [(*each, parts) for each in machines for parts in (False, True)]
    words = "{:.1e} flop/s and {:.0e} bytes/s on {} devices, by_parts={}"
    require_reference(answer, width, cases, words, ".0f", near=0.01)


def check_rows_to_hide(answer: Answer) -> None:
    """By a star and by parts, for several devices and links."""

    def rows(k: int, ratio: float, by_parts: bool) -> float:
        return boundary("data", k, 1, ratio, shared=not by_parts)

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
