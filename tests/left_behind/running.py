"""What runs: threads of Python, and processes that this one has started."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.left_behind.kinds import Change, Kind, Seen

OF_LIBRARIES = ("tqdm_monitor",)  # it begins with the first bar of progress
TASKS = Path("/proc/self/task")
GONE = (FileNotFoundError, ProcessLookupError, ChildProcessError)


class Threads(Kind):
    """The threads that Python knows; it cannot end one."""

    may_end = True

    def look(self) -> Seen:
        """Return the threads, but for those that stay."""
        return {
            id(thread): thread
            for thread in threading.enumerate()
            if not isinstance(thread, threading._DummyThread)  # one of C++
            if thread.name not in OF_LIBRARIES
        }

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Say which thread it is, and where."""
        for change in changes:
            frame = sys._current_frames().get(change.now.ident or 0)
            place = frame and f"{frame.f_code.co_filename}:{frame.f_lineno}"
            yield f"a thread: {change.now.name}, at {place}"


class Processes(Kind):
    """The children of this process, where the system lists them."""

    may_end = True

    def look(self) -> Seen:
        """Return their numbers."""
        if sys.platform != "linux":
            return {}
        found: Seen = {}
        for task in os.listdir(TASKS):
            with suppress(*GONE), open(TASKS / task / "children") as listed:
                found |= dict.fromkeys(listed.read().split())
        return found

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Say what each runs."""
        for change in changes:
            command = ""
            with suppress(*GONE):
                command = Path(f"/proc/{change.key}/cmdline").read_text()
            words = " ".join(command.replace("\0", " ").split())[:200]
            yield f"a process: {change.key}, {words or 'never waited for'}"

    def put_back(self, changes: list[Change]) -> None:
        """Kill them; whoever has started one may wait for it."""
        for change in changes:
            with suppress(*GONE):
                os.kill(int(change.key), signal.SIGKILL)


THREADS, PROCESSES = Threads(), Processes()
