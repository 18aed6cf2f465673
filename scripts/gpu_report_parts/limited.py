"""A program with a limit of time, ended with all that it has started.

Ranks and kernels have their own sessions, and may outlive the process that
started them. So each program gets a mark in its environment, which all that
it starts inherits, and every process with the mark is killed. The children of
a process would not do: a process whose parent has ended is nobody's child.

A limit in seconds of a clock is for who waits. Where other programs may have
the cores, a :class:`CpuLimit` ends what computes for too long or not at all.
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
LOOK_SECONDS = 5.0  # how often the processes are asked what they have used
# What only waits may look now and then whether it has to wait longer. What
# computes gets more than this, even with thirty others on two cores.
IDLE_SHARE = 0.01


@dataclass(frozen=True)
class CpuLimit:
    """How much a program may compute, on however busy a machine.

    Attributes:
        seconds: What it and all that it starts may use of the cores.
        idle_seconds: For so long it may use next to nothing of them.
    """

    seconds: float
    idle_seconds: float = 300.0


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
    command: Sequence[str],
    log: Path,
    limit: float | CpuLimit,
    mark: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a program within a limit; write what it says.

    Args:
        command: The program and what it is given.
        log: Where to write its output and errors.
        limit: Seconds, or a limit of the cores' time. At its end the program
            is interrupted, and soon killed.
        mark: What tells its processes from all others: no other program's
            mark may begin with it.
        environment: Its environment variables; None: those of this process.
        folder: Its working directory; None: that of this process.
    """
    start = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**(environment or os.environ), MARK: mark},
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for us, who end it
        )
        try:
            if isinstance(limit, CpuLimit):
                status = _wait_while_it_computes(process, limit, mark)
            else:
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


def _wait_while_it_computes(
    process: subprocess.Popen[bytes], limit: CpuLimit, mark: str
) -> int | None:
    used_before, since = 0.0, time.monotonic()
    while (status := _wait(process, LOOK_SECONDS)) is None:
        used, now = cpu_seconds(mark), time.monotonic()
        if used > limit.seconds:
            return None
        # Less than before: some that had computed are no longer there.
        if abs(used - used_before) >= IDLE_SHARE * limit.idle_seconds:
            used_before, since = used, now
        elif now - since >= limit.idle_seconds:
            return None
    return status


def cpu_seconds(prefix: str) -> float:
    """Return what the processes with this mark have used of the cores.

    With them counts what they have started, and seen end.
    """
    used = 0.0
    for process in marked(prefix):
        with suppress(psutil.Error):  # it has just ended
            used += sum(process.cpu_times()[:4])  # of children, too
    return used


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
