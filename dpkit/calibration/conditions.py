"""Whether a machine was quiet enough to be measured."""

from __future__ import annotations

import os

# Of 75 probes on two cores that had four times their work, the median was 50
# to 150 % above the fastest round.
MOST_SPREAD = 0.2


def load() -> float:
    """Return how many programs ran or waited to, in the last minute.

    Where the system does not tell, it is zero.

    Example:
        >>> load() >= 0
        True
    """
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def doubts(spread: float, load: float, threads: int) -> list[str]:
    """Return why measurements may be wrong, with the figures.

    Args:
        spread: How far repetitions lay above the fastest, as a share of it.
        load: How many programs wanted to run before.
        threads: How many this one computes with.

    Example:
        >>> doubts(spread=0.03, load=0.1, threads=1)
        []
        >>> print(*doubts(spread=1.5, load=0.0, threads=1))
        repetitions were not steady (median above the fastest: 150 %, quiet \
machines: below 20 %)
    """
    found, cores = [], os.cpu_count() or 1
    if load + threads > cores + 0.5:  # what starts Python may linger
        found.append(
            f"the machine was busy (load: {load:.1f}, threads: {threads}, "
            f"cores: {cores})"
        )
    if spread > MOST_SPREAD:
        found.append(
            "repetitions were not steady (median above the fastest: "
            f"{100 * spread:.0f} %, quiet machines: below "
            f"{100 * MOST_SPREAD:.0f} %)"
        )
    return found
