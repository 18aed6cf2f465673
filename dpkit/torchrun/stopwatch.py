"""The time that a script sees: that of the simulated clock.

``time.time()``, ``time.perf_counter()`` and the like are those of the host of
this rank where the script's own files ask. Libraries, such as those that log
or wait for a process, see the time on the wall. ``time.sleep`` takes simulated
seconds alone.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from dpkit.sim.changes.change import replaced
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.places import LIBRARIES
from dpkit.sim.streams.sending import thread

CLOCKS = ("time", "perf_counter", "monotonic")
NANOSECONDS = 1_000_000_000


def is_of_script(file: str) -> bool:
    """Return whether a file of Python is the script's, and no library's."""
    return not file.startswith(LIBRARIES)


def _for_script(
    real: Callable[..., Any], simulated: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that does the one for a script, else the other."""

    @wraps(real)
    def call(*args: Any) -> Any:
        if is_of_script(sys._getframe(1).f_code.co_filename):
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
    """Keep the host of this rank busy for a while."""
    assert thread.rank is not None
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
