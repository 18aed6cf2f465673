"""Time several ways of doing something, in turns.

What slows the machine for a while slows all of them.
"""

import time
from collections.abc import Callable, Mapping
from statistics import median

WARM_UP, REPETITIONS = 2, 7

Seconds = dict[str, list[float]]


def time_in_turns(
    ways: Mapping[str, Callable[[], object]],
    count: int = 1,
    wait: Callable[[], object] = lambda: None,
) -> Seconds:
    """Return the seconds of a call of each way, in each repetition.

    Args:
        ways: The ways, by name.
        count: How many calls are timed together.
        wait: Waits until the work of all calls is done.
    """
    seconds: Seconds = {name: [] for name in ways}
    for repetition in range(-WARM_UP, REPETITIONS):
        # Forward and backward in turn: no way is always the first.
        for name in ways if repetition % 2 == 0 else reversed(ways):
            wait()
            start = time.perf_counter()
            for _ in range(count):
                ways[name]()
            wait()
            if repetition >= 0:
                seconds[name].append((time.perf_counter() - start) / count)
    return seconds


def report(title: str, seconds: Seconds) -> None:
    """Print least, median and largest, and the ratio to the first line."""
    print(f"\n{title}")
    first = median(next(iter(seconds.values())))
    scale, unit = (1e6, "µs") if first < 1e-3 else (1e3, "ms")
    for name, found in seconds.items():
        low, middle, high = min(found), median(found), max(found)
        columns = "".join(f"{scale * t:11.2f}" for t in (low, middle, high))
        ratio = f"{middle / first:6.2f} ×"
        print(f"  {name:<24}{columns} {unit}   {ratio}", flush=True)
