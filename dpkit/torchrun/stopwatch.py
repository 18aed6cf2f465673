"""The time that a script sees: that of the simulated clock.

``time.time()``, ``time.perf_counter()`` and the like are those of the host of
this rank where the script's own files ask. Libraries, such as those that log
or wait for a process, see the time on the wall. ``time.sleep`` takes simulated
seconds alone.
"""

import os
import sys
import time
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from dpkit.sim.changes.change import replaced
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.places import LIBRARIES
from dpkit.sim.streams.sending import thread

CLOCKS = ("time", "perf_counter", "monotonic")
MOST_SLEEP = 0.05  # seconds on the wall
_really_sleep = time.sleep
NANOSECONDS = 1_000_000_000


def is_of_script(file: str) -> bool:
    """Return whether a file of Python is the script's, and no library's."""
    return not file.startswith(LIBRARIES)


def _for_script(
    real: Callable[..., Any], simulated: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that does the one for a script, else the other."""
    process = os.getpid()

    @wraps(real)
    def call(*args: Any) -> Any:
        is_own = os.getpid() == process  # and no worker that loads data
        if is_own and is_of_script(sys._getframe(1).f_code.co_filename):
            return simulated(*args)
        return real(*args)

    return call


def _seconds_from(zero: float) -> Callable[[], float]:
    return lambda: zero + simulation.clock.now(thread.rank)


def _nanoseconds_from(zero: int) -> Callable[[], int]:
    return lambda: (
        zero + round(NANOSECONDS * simulation.clock.now(thread.rank))
    )


def _sleep(seconds: float) -> None:
    """Keep the host of this rank busy for a while.

    A moment passes, too: a script may ask in a loop whether something is
    there, and use no CPU meanwhile.
    """
    assert thread.rank is not None
    _really_sleep(min(seconds, MOST_SLEEP))
    simulation.clock.hosts.busy(thread.rank, "sleep", seconds)


def show_simulated_time(stack: ExitStack) -> None:
    """Show a script simulated time, until a stack ends."""
    new: dict[str, Callable[..., Any]] = {"sleep": _sleep}
    for name in CLOCKS:
        new[name] = _seconds_from(getattr(time, name)())
        new[f"{name}_ns"] = _nanoseconds_from(getattr(time, f"{name}_ns")())
    for name, simulated in new.items():
        call = _for_script(getattr(time, name), simulated)
        stack.callback(replaced(time, name, call).apply())
    timer = time.perf_counter
    stack.callback(replaced(timeit, "default_timer", timer).apply())
