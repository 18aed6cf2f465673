"""Seconds of a call on a GPU, by its own events."""

import time
from collections.abc import Callable

import torch

ENOUGH_SECONDS = 0.02  # of calls between two events
TIMES = 3  # of which the shortest counts


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of a call, of which many are issued in a row.

    So the GPU does not wait for the host, unless the call is so short that
    the host takes longer to issue it.
    """
    call()
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = max(1e-6, time.perf_counter() - begin)
    count = max(3, min(50, int(ENOUGH_SECONDS / once)))
    return min(_between_events(call, count) for _ in range(TIMES))


def _between_events(call: Callable[[], object], count: int) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(count):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / count / 1e3
