"""The time that a program sees: that of the simulated clock.

``time.time()``, ``time.perf_counter()`` and the like are those of the host of
this process, or of this rank, where the program's own files or cells ask.
Libraries, such as those that log or wait for a process, see the time on the
wall. ``time.sleep`` takes simulated seconds alone. What Python computes takes
none; a loop that reads the time until it is late enough ends all the same, by
the number of its readings and not by the speed of this machine.
"""

import os
import sys
import time
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from threading import local
from typing import Any

from dpkit.sim import places
from dpkit.sim.changes import replaced
from dpkit.sim.clock import SHARE_OF_READING, ClockInterface
from dpkit.sim.devices import current_device, simulation
from dpkit.sim.streams import thread

CLOCKS = ("time", "perf_counter", "monotonic")
MOST_SLEEP = 0.05  # seconds on the wall
_really_sleep = time.sleep
NANOSECONDS = 1_000_000_000
SIMULATED_TIME = (
    "dpkit: the program sees simulated time, by time.time() and the like "
    "(dpkit.sim.as_cuda(real_time=True) leaves them as they are)"
)


class _Elapsed(local):
    """The seconds of the simulated clock, which never go back.

    Each machine has a clock that begins at 0: those of all machines that a
    thread has asked on are added.
    """

    def __init__(self) -> None:
        self._clocks: list[ClockInterface[Any]] = []
        self._last_read = -1.0

    def read(self) -> float:
        """Return the seconds; to read them once more takes the host a moment.

        Else a loop would wait for a time that never comes. The moment grows
        with the number of readings between which the host does nothing else.
        """
        now = self.seconds()
        if now == self._last_read:
            simulation.clock.poll(
                _driven_device(), "read the time", share=SHARE_OF_READING
            )
            now = self.seconds()
        self._last_read = now
        return now

    def seconds(self) -> float:
        if simulation.clock not in self._clocks:
            self._clocks.append(simulation.clock)
        return sum(clock.now(thread.rank) for clock in self._clocks)


def _for_program(
    real: Callable[..., Any], simulated: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that does the one for a program, else the other."""
    process = os.getpid()

    @wraps(real)
    def call(*args: Any) -> Any:
        is_own = os.getpid() == process  # and no worker that loads data
        if is_own and places.is_program(sys._getframe(1)):
            return simulated(*args)
        return real(*args)

    return call


def _sleep(seconds: float) -> None:
    """Keep the host of this process or rank busy for a while.

    A moment passes, too: a program may ask in a loop whether something is
    there, and use no CPU meanwhile.
    """
    _really_sleep(min(seconds, MOST_SLEEP))
    simulation.clock.hosts.busy(_driven_device(), "sleep", seconds)


def _driven_device() -> int:
    """Return the device whose host runs this program or rank."""
    return current_device() if thread.rank is None else thread.rank


def show_simulated_time(stack: ExitStack, tells: bool = False) -> None:
    """Show a program simulated time, until a stack ends.

    Args:
        stack: What undoes it.
        tells: Whether the first use prints that it is simulated.
    """
    elapsed = _Elapsed()
    has_told = [not tells]

    def shown(zero: Any, unit: int | None) -> Callable[[], Any]:
        """Return a clock that begins at ``zero``; None: it counts seconds."""

        def read() -> Any:
            if not has_told[0]:
                has_told[0] = True
                stream = sys.stdout if places.in_notebook() else sys.stderr
                print(SIMULATED_TIME, file=stream)
            seconds = elapsed.read()
            return zero + (seconds if unit is None else round(unit * seconds))

        return read

    new: dict[str, Callable[..., Any]] = {"sleep": _sleep}
    for name in CLOCKS:
        nanoseconds = f"{name}_ns"
        new[name] = shown(getattr(time, name)(), None)
        new[nanoseconds] = shown(getattr(time, nanoseconds)(), NANOSECONDS)
    for name, simulated in new.items():
        call = _for_program(getattr(time, name), simulated)
        stack.callback(replaced(time, name, call).apply())
    timer = time.perf_counter
    stack.callback(replaced(timeit, "default_timer", timer).apply())
