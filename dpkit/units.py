"""Numbers: written with a unit, as the ticks of an axis, or checked."""

import math
from collections.abc import Iterable
from operator import index

TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit that fits a time: in seconds, and its name."""
    check_number("seconds", seconds)
    fits = (u for u in TIMES if abs(seconds) >= u[0])
    return next(fits, TIMES[-1] if seconds else TIMES[0])


def memory_unit(num_bytes: int) -> tuple[int, str]:
    """Return the unit that fits a memory: in bytes, and its name."""
    check_number("num_bytes", num_bytes)
    return next((u for u in BINARY if num_bytes >= u[0]), BINARY[-1])


def show_seconds(seconds: float) -> str:
    """Write a time to four digits: "12.35 ms"."""
    unit, name = time_unit(seconds)
    return f"{_digits(seconds / unit)} {name}"


def show_memory(num_bytes: int) -> str:
    """Write the size of a memory in powers of 1024: "1.5 KiB"."""
    unit, name = memory_unit(num_bytes)
    return f"{_digits(num_bytes / unit)} {name}"


def show_bytes(num_bytes: float) -> str:
    """Write an amount of traffic in powers of 1000: "25.6 MB"."""
    return show_amount(num_bytes, "B")


def show_factor(factor: float) -> str:
    """Return a factor as words: how many times too large, or too small.

    Example:
        >>> from dpkit.units import show_factor
        >>> show_factor(1.86), show_factor(0.223)
        ('×1.86', '÷4.48')
    """
    check_number("factor", factor)
    return f"×{factor:.2f}" if factor >= 1 else f"÷{1 / factor:.2f}"


def show_amount(value: float, unit: str) -> str:
    """Write an amount in powers of 1000: "128 GFLOP" in the unit "FLOP"."""
    check_number("value", value)
    size, prefix = next((u for u in DECIMAL if value >= u[0]), DECIMAL[-1])
    return f"{_digits(value / size)} {prefix}{unit}"


def _digits(value: float) -> str:
    """Write four digits, or all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def round_ticks(start: float, end: float, *, at_most: int = 6) -> list[str]:
    """Return the round numbers of an axis, as words.

    Args:
        start: The value at the left end of the axis.
        end: The value at its right end, greater than ``start``.
        at_most: About how many steps between the numbers there may be.
    """
    # A step is 1, 2 or 5 times a power of ten, the least that is long enough.
    # From 96 to 128 in 6 steps: at least 5.33, so 10.
    least = (end - start) / at_most
    power = math.floor(math.log10(least))
    step = next(m for m in (1, 2, 5, 10) if m * 10.0**power >= least * 0.999)
    if step == 10:
        step = 1
        power += 1
    size = step * 10.0**power
    slack = 1e-6  # a tick that falls on the end is on the axis
    first = math.ceil(start / size - slack)
    last = math.floor(end / size + slack)
    ticks = range(first, last + 1)
    return [f"{tick * size:.{max(0, -power)}f}" for tick in ticks]


def check_whole(name: str, value: object) -> None:
    """Raise TypeError unless a count, rank or size is a whole number."""
    try:
        index(value)  # type: ignore[arg-type]
        is_whole = not isinstance(value, bool)
    except TypeError:
        is_whole = False
    if not is_whole:
        raise TypeError(f"not a whole number ({name}: {value!r})")


def check_count(name: str, count: int) -> None:
    """Raise an error unless a count is a whole number, one or more."""
    check_whole(name, count)
    if count < 1:
        raise ValueError(f"the count is below one ({name}: {count})")


def check_number(name: str, value: object) -> None:
    """Raise TypeError unless a value is a number; NaN and infinity are."""
    try:
        math.isnan(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"not a number ({name}: {value!r})") from None


def check_seconds(name: str, seconds: float) -> None:
    """Raise an error unless a time is a number of seconds above zero."""
    check_number(name, seconds)
    if not seconds > 0:  # NaN is refused, too
        raise ValueError(
            f"not a positive number of seconds ({name}: {seconds})"
        )


def check_flag(name: str, value: object) -> None:
    """Raise TypeError unless a value is True or False: "False" is neither."""
    if value not in (True, False):
        raise TypeError(f"neither True nor False ({name}: {value!r})")


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise ValueError unless a name is one of those that are known."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"unknown {what} ({what}: {name!r}, known: {', '.join(known)})"
        )
