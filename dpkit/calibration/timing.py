"""Time small things: in turns, each often enough to be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from tqdm import tqdm

Times = dict[str, list[tuple[float, float]]]

ROUNDS = 11
ENOUGH_SECONDS = 2e-3  # a thousand times what reading the clock takes


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Probe:
    """Something to time, at one size.

    Attributes:
        kind: What it is; probes of several sizes share it.
        size: How much of it: floating-point operations, bytes, or a count.
        calls: Each does it once; they take turns, so that one may find its
            operands no longer in a cache.
        settle: Waits until nothing is going on; it is not timed.
    """

    kind: str
    size: float
    calls: Sequence[Callable[[], object]]
    settle: Callable[[], object] = nothing


def measure(
    probes: Sequence[Probe],
    rounds: int = ROUNDS,
    now: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time each probe in each round; a bar shows how far it is.

    In each round all take their turn, so that a machine that is slow for a
    while is slow for all of them. Of the rounds the fastest counts: what is
    above it, other work on the machine has added.

    Args:
        probes: What to time.
        rounds: How often; the first to warm up comes on top.
        now: The clock, in seconds.

    Returns:
        Kind -> (size, seconds that a call takes), in the order of the
        probes.

    Example:
        >>> times = measure([Probe("sum", 100, [lambda: sum(range(100))])])
        >>> [(size, 0 < seconds < 1) for size, seconds in times["sum"]]
        [(100, True)]
    """
    seconds: list[list[float]] = [[] for _ in probes]
    with tqdm(total=(rounds + 1) * len(probes), leave=False) as bar:
        counts = []
        for probe in probes:
            bar.set_description(probe.kind)
            counts.append(_count(probe, now))
            bar.update()
        for _ in range(rounds):
            for probe, count, found in zip(probes, counts, seconds):
                bar.set_description(probe.kind)
                found.append(_time(probe, count, now) / count)
                bar.update()
    times: Times = {}
    for probe, found in zip(probes, seconds):
        times.setdefault(probe.kind, []).append((probe.size, min(found)))
    return times


def _count(probe: Probe, now: Callable[[], float]) -> int:
    """Return how many calls take long enough to be timed; warm up."""
    probe.calls[0]()
    count = 1
    while _time(probe, count, now) < ENOUGH_SECONDS:
        count *= 2
    return count


def _time(probe: Probe, count: int, now: Callable[[], float]) -> float:
    """Return the seconds that so many calls take together."""
    calls = islice(cycle(probe.calls), count)
    probe.settle()
    start = now()
    for call in calls:
        call()
    seconds = now() - start
    probe.settle()
    return seconds
