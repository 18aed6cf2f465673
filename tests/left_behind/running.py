"""What runs: threads of Python, and processes that this one has started."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.left_behind.kinds import Change, Kind, Seen

OF_LIBRARIES = ("tqdm_monitor",)  # it begins with the first bar of progress
TASKS = Path("/proc/self/task")
STARTED = ("Popen", "Forked")  # classes that wait for what they have started
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
        """Describe each thread, and where it is."""
        for change in changes:
            frame = sys._current_frames().get(change.now.ident or 0)
            place = frame and f"{frame.f_code.co_filename}:{frame.f_lineno}"
            yield f"a thread: {change.now.name}, at {place}"


def bury() -> None:
    """Wait for processes that have ended, if nobody else can.

    One whose parent has ended first may have become a child of this process.
    And a Popen that is gone has left its process to Python.
    """
    subprocess._cleanup()  # type: ignore[attr-defined]
    ended = {pid for pid in PROCESSES.look() if _has_ended(pid)}
    if not ended:
        return
    known = {
        str(value.pid)
        for value in gc.get_objects()
        if type(value).__name__ in STARTED
    }
    for pid in ended - known:
        with suppress(*GONE):
            os.waitpid(int(pid), os.WNOHANG)


def _has_ended(pid: str) -> bool:
    with suppress(*GONE):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "Z"
    return False


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
        # The fork server begins with the first rank, and stays.
        forking = sys.modules.get("dpkit.processes.forking")
        for server in forking._servers if forking else ():
            found.pop(str(server.pid), None)
        return found

    def describe(self, changes: list[Change]) -> Iterator[str]:
        """Describe what each runs."""
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
