"""How the time of a step depends on the number of devices: two questions.

Weak scaling: each device has as many rows as one had alone, so that the batch
grows. Strong scaling: the batch stays, and each device has a part of it. Both
compare what is done in a second with what one device does in it; the numbers
of the two are not comparable, for the work differs.
"""

from __future__ import annotations

from collections.abc import Mapping


def weak_speedups(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return how many times the rows of one device are done in a second.

    Args:
        seconds: Of a step on k devices, by k, with as many rows on each as
            on one alone.

    Example:
        >>> weak_speedups({1: 4.0, 2: 5.0, 4: 8.0})
        {1: 1.0, 2: 1.6, 4: 2.0}
    """
    return {k: k * seconds[1] / found for k, found in seconds.items()}


def strong_speedups(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return how many times faster than on one device a step is.

    Args:
        seconds: Of a step on k devices, by k, with the same whole batch.

    Example:
        >>> strong_speedups({1: 4.0, 2: 2.5, 4: 2.0})
        {1: 1.0, 2: 1.6, 4: 2.0}
    """
    return {k: seconds[1] / found for k, found in seconds.items()}


def unsplit_seconds(one: float, found: float, k: int) -> float:
    """Return the seconds that do not split, from the times of two steps.

    One device takes unsplit + split, and k take unsplit + split / k.

    Args:
        one: Seconds of a step on one device.
        found: Seconds of the same step on k devices.
        k: More than one.

    Example:
        >>> unsplit_seconds(one=4.0, found=2.5, k=2)
        1.0
    """
    return (k * found - one) / (k - 1)


def amdahl_seconds(one: float, unsplit: float, k: int) -> float:
    """Return the seconds of a step on k devices, if only the rest splits.

    Args:
        one: Seconds of a step on one device.
        unsplit: Those of them that no number of devices shortens.
        k: The number of devices.

    Example:
        >>> amdahl_seconds(one=4.0, unsplit=1.0, k=3)
        2.0
    """
    return unsplit + (one - unsplit) / k
