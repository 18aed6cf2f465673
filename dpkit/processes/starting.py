"""Start the program of a rank, and tell it of a job."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpkit.processes.forking import (
    Forked,
    ForkServer,
    absolute_path,
    fork_server,
)
from dpkit.processes.server import Command

Process = subprocess.Popen[bytes] | Forked
RANK_PROGRAM = "from dpkit.processes import run_rank; run_rank()"


def server_of_ranks() -> ForkServer | None:
    """Return what forks ranks, as ``fork_server`` does."""
    return fork_server(_environment())


def start(
    folder: Path, rank: int, world_size: int, backend: str | None
) -> Process:
    """Start the process of a rank, which waits for jobs in the folder.

    Args:
        folder: That of all ranks; each job is a folder within it.
        rank: From 0 to ``world_size`` - 1.
        world_size: The number of ranks.
        backend: "gloo" or "nccl"; None: the rank chooses.
    """
    environment = {
        **_environment(),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
    }
    if server := server_of_ranks():
        arguments = [str(folder), "0", backend or ""]
        return _fork(server, arguments, environment)
    is_main = threading.current_thread() is threading.main_thread()
    parent = str(os.getpid() if is_main else 0)
    arguments = [str(folder), parent, backend or ""]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", RANK_PROGRAM, *arguments],
        env=environment,
        bufsize=0,
        stdin=subprocess.PIPE,  # its end tells the rank that we are gone
        start_new_session=True,  # Ctrl-C is for the parent, which ends them
    )


def _environment() -> dict[str, str]:
    """Return the variables that all ranks have."""
    return {
        "OMP_NUM_THREADS": "1",  # more threads than cores would spin
        **os.environ,
        "PYTHONPATH": os.pathsep.join(absolute_path()),
    }


def _fork(
    server: ForkServer, arguments: list[str], environment: dict[str, str]
) -> Forked:
    """Start a rank as ``start`` does, from the server."""
    command = Command(
        RANK_PROGRAM,
        arguments,
        environment=environment,
        cwd=os.getcwd(),
        path=absolute_path(),
        removes=arguments[0],
    )
    end, own = os.pipe()
    try:
        return server.fork(command, [end, 1, 2], os.fdopen(own, "wb", 0))
    finally:
        os.close(end)


def tell(process: Process, name: str) -> None:
    """Write to a rank the name of its next job, a folder within its own."""
    assert process.stdin
    with suppress(BrokenPipeError):  # it ended, as the parent will find
        process.stdin.write(f"{name}\n".encode())


def kill(process: Process) -> None:
    """Kill a rank, and what it has started that is still in its session."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # without effect on one that ended


@contextmanager
def ctrl_c_deferred() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, which is not to end in half.

    Ctrl-C interrupts the main thread alone; in others this does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is None:  # None: not set by Python
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
