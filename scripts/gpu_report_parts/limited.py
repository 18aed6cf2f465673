"""A program with a limit of time, ended with all that it has started.

Ranks and kernels have their own sessions, and may outlive the process that
started them. So each program gets a mark in its environment, which all that
it starts inherits, and every process with the mark is killed. The children of
a process would not do: a process whose parent has ended is nobody's child.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "DPKIT_GPU_REPORT_PART"
# What is interrupted may say where it was, and a test run what failed so far.
GRACE_SECONDS = 5.0
SWEEPS = 50
SWEEP_SECONDS = 0.1


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        status: Its exit status; None: it was ended at its limit.
        seconds: How long it ran.
    """

    status: int | None
    seconds: float


def run(
    words: Sequence[str],
    log: Path,
    limit: float,
    mark: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a program, at most ``limit`` seconds; write what it says.

    Args:
        words: The program and what it is given.
        log: Where to write its output and errors.
        limit: Seconds, after which it is interrupted, and soon killed.
        mark: What tells its processes from all others: no other program's
            mark may begin with it.
        environment: Its environment variables; None: those of this process.
        folder: Its working directory; None: that of this process.
    """
    start = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**(environment or os.environ), MARK: mark},
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for us, who end it
        )
        try:
            status = _wait(process, limit)
            if status is None:
                process.send_signal(signal.SIGINT)
                _wait(process, GRACE_SECONDS)
        finally:
            end_all(mark)
            process.wait()
    return Ended(status, time.monotonic() - start)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def marked(prefix: str) -> list[psutil.Process]:
    """Return the running processes whose mark begins with ``prefix``."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it ended, or is another's
            if process.environ().get(MARK, "").startswith(prefix):
                found.append(process)
    return [process for process in found if process.pid != os.getpid()]


def end_all(prefix: str) -> None:
    """Kill all processes whose mark begins with ``prefix``.

    They are looked for again, not waited for: that would take from ``Popen``
    how its process ended, and it would report success.
    """
    for _ in range(SWEEPS):  # some may start others meanwhile
        found = marked(prefix)
        if not found:
            return
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(SWEEP_SECONDS)
