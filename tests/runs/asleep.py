"""Wait for a process to wait."""

import time
from contextlib import suppress
from pathlib import Path


def wait_until_it_waits(pid: int) -> None:
    """Wait until all threads of a process sleep, however busy the machine."""
    deadline = time.monotonic() + 1200
    idle = 0
    states: set[str] = set()
    while idle < 5:
        assert time.monotonic() < deadline, states
        time.sleep(0.02)
        states = set()
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            # A thread may end before it is read.
            with suppress(FileNotFoundError, ProcessLookupError):
                states.add(stat.read_text().rpartition(")")[2][1])
        idle = idle + 1 if states <= {"S"} else 0
