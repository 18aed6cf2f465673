"""A watch over a script that python starts: does it wait, and nobody works?

A script that starts processes itself may read what they never send::

    rank 0     puts its loss into a queue, and ends
    rank 1     ends
    script     reads twice: for the second loss it waits for ever

While ranks run, ``forked.idle`` watches them; then this watch rests.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from dpkit.runs.forked.idle import ASKS, LOOK_EVERY
from dpkit.runs.forked.proxy import seconds_used
from dpkit.runs.ranks.watching import (
    TASKS,
    IdleError,
    IdleWatch,
    ProgramLine,
    WaitingPlaces,
    ready_threads,
    seconds_here,
)
from dpkit.sim import places


class IdleScript(BaseException):
    """Raised in a script that has done nothing for as long as the limit.

    It is no ``Exception``: what a script does about its own errors, such as
    in a loop of ``get(timeout=1)``, should not keep it going.
    """


class ScriptWatch(IdleWatch):
    """How long a script and the processes that it started have done nothing.

    It looks in its own thread, and ends the script by a signal: the main
    thread may wait in C.
    """

    advice = (
        "Nor has a process that it has started: what it waits for may never "
        "come. Those of torch.multiprocessing run, to their end, when one of "
        "them is joined or the script reads a queue of theirs. Ctrl-C ends "
        "the run, and so does the option --idle-limit SECONDS"
    )

    def __init__(self, limit: float) -> None:
        self._script = threading.get_ident()
        self._reached = ""  # what has been said of it at the limit
        super().__init__(limit)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the script that runs in a block, in the main thread.

        Raises:
            IdleScript: nothing has been done for as long as the limit.
        """
        before = signal.signal(ASKS, self._end_script)
        self._start()
        try:
            yield
        finally:
            self._stop()
            signal.signal(ASKS, before)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Look at nothing in a block."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def progress(self) -> int:
        """Return 0: CPU time alone tells that the script goes on."""
        return 0

    def used(self) -> float:
        """Return the seconds of CPU of the script and of what it started."""
        started = _children(os.getpid())
        return seconds_here() + sum(map(seconds_used, started))

    def ready(self) -> set[str]:
        """Return the threads of all these that run or could run."""
        processes = [os.getpid(), *_children(os.getpid())]
        return set().union(*map(ready_threads, processes))

    def places(self) -> WaitingPlaces:
        """Return the line of the script; it counts as rank 0 here."""
        frame = sys._current_frames().get(self._script)
        for called, line in traceback.walk_stack(frame):
            if places.is_program(called):
                code = called.f_code
                place = ProgramLine(code.co_filename, line, code.co_name)
                return {place: [0]}
        return {None: [0]}

    def _text(self, ranks: list[int], seconds: float, place: object) -> str:
        return (
            f"the script has done nothing for {seconds:.0f} s ({place}). "
            f"{self.advice}"
        )

    def _start(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="watch", daemon=True
        )
        self._thread.start()

    def _stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        self._begin()
        while not self._over.wait(LOOK_EVERY):
            try:
                self.look()
            except IdleError as error:
                self._reached = str(error)
                signal.pthread_kill(self._script, ASKS)

    def _end_script(self, *_: Any) -> NoReturn:
        raise IdleScript(self._reached)


def _children(process: int) -> list[int]:
    """Return the processes that one has started, and theirs, on Linux."""
    found = []
    with suppress(OSError):  # another system; or it has ended
        for task in os.listdir(TASKS.format(process)):
            path = Path(TASKS.format(process), task, "children")
            for child in map(int, path.read_text().split()):
                found += [child, *_children(child)]
    return found
