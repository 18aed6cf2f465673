"""Counts, ranks and sizes are whole numbers: neither 2.0 nor "2"."""

from __future__ import annotations

from operator import index


def check_whole(name: str, value: object) -> None:
    """Raise TypeError unless an argument is a whole number.

    Args:
        name: What the argument is called.
        value: What was given.

    Example:
        >>> check_whole("num_devices", 2)
        >>> check_whole("num_devices", 2.0)
        Traceback (most recent call last):
        TypeError: not a whole number (num_devices: 2.0)
    """
    try:
        index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"not a whole number ({name}: {value!r})") from None
