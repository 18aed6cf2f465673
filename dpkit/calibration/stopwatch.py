"""Time small things: in turns, each often enough to be seen."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median

from tqdm import tqdm

# Kind -> (size, seconds) for each probe of it; or the seconds of each round.
Times = dict[str, list[tuple[float, float]]]
Rounds = dict[str, list[tuple[float, list[float]]]]

ROUNDS = 11
ENOUGH_SECONDS = 2e-3  # a thousand times what reading the clock takes


@dataclass(frozen=True)
class Probe:
    """Something to time, at one size."""

    kind: str  # what it is; probes of several sizes share it
    size: float  # floating-point operations, bytes, or a count
    # Each does it once; they take turns, so that a call does not find its
    # operands in a cache.
    calls: Sequence[Callable[[], object]]
    synchronize: Callable[[], object] = lambda: None  # waits for all; untimed


def measure(
    probes: Sequence[Probe],
    rounds: int = ROUNDS,
    now: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Time each probe in each round; a bar shows how far it is.

    In each round all take their turn, so that a machine that is slow for a
    while is slow for all of them.

    Args:
        probes: What to time.
        rounds: How often to time each of them.
        now: A clock that returns seconds.

    Returns:
        By kind, each size with the seconds of one call in every round.
    """
    seconds: list[list[float]] = [[] for _ in probes]
    bar = tqdm(probes, "first calls", leave=False)
    counts = [_count(probe, now) for probe in bar]
    for _ in tqdm(range(rounds), "rounds", leave=False):
        for probe, count, found in zip(probes, counts, seconds):
            found.append(_time(probe, count, now) / count)
    measured: Rounds = {}
    for probe, found in zip(probes, seconds):
        measured.setdefault(probe.kind, []).append((probe.size, found))
    return measured


def fastest(rounds: Rounds) -> Times:
    """Return the fastest seconds of each probe, over all rounds.

    Other programs can only make a round slower.
    """
    return {
        kind: [(size, min(seconds)) for size, seconds in found]
        for kind, found in rounds.items()
    }


def spread_of(rounds: Rounds) -> float:
    """Return how far rounds lie above the fastest, as a share of it."""
    return median(
        median(seconds) / min(seconds) - 1
        for found in rounds.values()
        for _, seconds in found
    )


def _count(probe: Probe, now: Callable[[], float]) -> int:
    """Return how many calls take long enough to be timed; warm up."""
    # a call of 0.3 ms: 1, 2, 4, then 8 of them take 2.4 ms, which is enough
    probe.calls[0]()
    count = 1
    while _time(probe, count, now) < ENOUGH_SECONDS:
        count *= 2
    return count


def _time(probe: Probe, count: int, now: Callable[[], float]) -> float:
    """Return the seconds that so many calls take together."""
    calls = islice(cycle(probe.calls), count)
    probe.synchronize()
    start = now()
    for call in calls:
        call()
    seconds = now() - start
    probe.synchronize()
    return seconds
