"""Time several ways of doing something, in turns.

What slows the machine for a while slows all of them. So a ratio is taken in
each repetition, of what was timed in the same turn.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

WARM_UP = 2
REPETITIONS = 7

Seconds = dict[str, list[float]]


def time_in_turns(
    ways: Mapping[str, Callable[[], object]],
    count: int = 1,
    wait: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    prepare: Callable[[], object] = lambda: None,
) -> Seconds:
    """Return the seconds of a call of each way, in each repetition.

    Args:
        ways: The ways, by name.
        count: How many calls are timed together.
        wait: Waits until the work of all calls is done.
        clock: The seconds of what it tells are measured.
        prepare: Is called before each way, and not timed.
    """
    return in_turns(
        {
            name: partial(_seconds, way, count, wait, clock, prepare)
            for name, way in ways.items()
        }
    )


def in_turns(measures: Mapping[str, Callable[[], float]]) -> Seconds:
    """Return what each of some functions measures, in each repetition."""
    seconds: Seconds = {name: [] for name in measures}
    for repetition in range(-WARM_UP, REPETITIONS):
        # Forward and backward in turn: no way is always the first.
        names = measures if repetition % 2 == 0 else reversed(measures)
        for name in names:
            measured = measures[name]()
            if repetition >= 0:
                seconds[name].append(measured)
    return seconds


def report(title: str, seconds: Seconds) -> None:
    """Print for each way its least, median and largest seconds.

    The ratio to the first way is the median of those in each repetition.

    Args:
        title: The first line.
        seconds: Way -> its seconds in each repetition.
    """
    print(f"\n{title}")
    first = next(iter(seconds.values()))
    scale, unit = (1e6, "µs") if median(first) < 1e-3 else (1e3, "ms")
    for name, found in seconds.items():
        low = min(found)
        middle = median(found)
        high = max(found)
        columns = "".join(f"{scale * t:11.2f}" for t in (low, middle, high))
        ratio = median(t / one for t, one in zip(found, first))
        print(f"  {name:<24}{columns} {unit}   {ratio:6.2f} ×", flush=True)


def _seconds(
    way: Callable[[], object],
    count: int,
    wait: Callable[[], object],
    clock: Callable[[], float],
    prepare: Callable[[], object],
) -> float:
    prepare()
    wait()
    start = clock()
    for _ in range(count):
        way()
    wait()
    return (clock() - start) / count
