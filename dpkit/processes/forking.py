"""Fork a process from the fork server: the caller's side of ``server``.

The server begins with the first process that is asked for, and ends with this
process. What a forked process has from it, and not from its caller, are
the limits and priorities that the system sets, as they were at that time, and
the modules of torch and dpkit.
"""

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from dpkit.processes.server import WITHOUT_CUDA, Command

SERVER_PROGRAM = "from dpkit.processes.server import run_server; run_server()"
START_LOOK_SECONDS = (
    0.005  # how often the server is looked at, while it starts
)
WAIT_SECONDS = 0.1  # for how long one look at a process waits for its end
# Variables that libraries read when they are imported. A process can be forked
# if its own have the values that they had when this one imported torch.
READ_AT_IMPORT = (
    *("ATEN_", "DNNL_", "GLIBC_", "GOMP_", "KMP_", "LANG", "LC_", "LD_"),
    *("MALLOC_", "MKL_", "NPY_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON"),
    *("PYTORCH_", "TORCH", "TQDM_", "TRITON_"),
)
READ_LATER = (
    *("PYTHONPATH", "TORCHELASTIC_RUN_ID"),
    *WITHOUT_CUDA,  # the server's own: its forks have imported with them
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),  # torch may set them
)


class Forked:
    """A process that was forked; in what it can do, a ``subprocess.Popen``."""

    def __init__(
        self, connection: Connection, stdin: IO[bytes] | None = None
    ) -> None:
        self.pid: int = connection.recv()
        self.stdin = stdin
        self.returncode: int | None = None
        self._connection = connection
        self._look = threading.Lock()

    def poll(self) -> int | None:
        """Return how it ended, a signal as a negative number; else None."""
        with self._look:
            if self.returncode is None and (
                self._connection.poll() or self._has_ended()
            ):
                try:
                    self.returncode = self._connection.recv()
                except EOFError:  # the server has ended: all are killed
                    self.returncode = -signal.SIGKILL
                self._connection.close()
        return self.returncode

    def _has_ended(self) -> bool:
        """Whether it has, even if the server has not said so yet.

        Other ranks may have found out, and the caller is to know whom they
        miss.
        """
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] in "ZX"

    def wait(self, timeout: float = inf) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: It had not ended in time.
        """
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            with suppress(OSError):  # another thread has read it
                self._connection.poll(WAIT_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal to it, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server that this process has started."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._is_ready = False
        self._socket, requests = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        path = os.pathsep.join(absolute_path())
        program = [sys.executable, "-P", "-c", SERVER_PROGRAM]
        with requests:
            self._process = subprocess.Popen(
                [*program, str(requests.fileno())],
                env={**environment, **WITHOUT_CUDA, "PYTHONPATH": path},
                pass_fds=[requests.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the caller
            )
        self.pid = self._process.pid

    def has_ended(self) -> bool:
        """Whether it was killed: its end of the socket is closed by then."""
        ends = select.poll()
        ends.register(self._socket, select.POLLHUP)
        return bool(ends.poll(0))

    def is_ready(self) -> bool:
        """Whether it has imported all.

        Raises:
            RuntimeError: It ended before that.
        """
        with self._lock, suppress(BlockingIOError):
            if not self._is_ready:
                word = self._socket.recv(9, socket.MSG_DONTWAIT)
                self._is_ready = word == b"ready"
                if not self._is_ready:
                    raise RuntimeError(
                        "the process from which ranks are forked ended while "
                        f"it started (exit code: {self._process.wait()})"
                    )
        return self._is_ready

    def wait_until_ready(self) -> None:
        """Wait until it has imported all."""
        while not self.is_ready():
            time.sleep(START_LOOK_SECONDS)

    def fork(
        self,
        command: Command,
        files: Sequence[int],
        stdin: IO[bytes] | None = None,
    ) -> Forked:
        """Start a process.

        Args:
            command: What it runs.
            files: Its standard input, output and error output.
            stdin: What its user writes its input into.
        """
        return Forked(self.ask(command, files), stdin)

    def prepare(self, program: str) -> None:
        """Run a program in the server itself, for all that it forks."""
        with self.ask(program, []) as connection:
            connection.recv()

    def ask(self, command: Command | str, files: Sequence[int]) -> Connection:
        """Give the server a command; return the connection of its answers."""
        self.wait_until_ready()
        ours, its = Pipe()
        with its:
            socket.send_fds(self._socket, [b"."], [its.fileno(), *files])
        ours.send(command)
        return ours

    def end(self) -> None:
        """End it, and all that it has forked."""
        self._socket.close()
        self._process.wait()

    def forget(self) -> None:
        """Close what a fork of the caller has of it."""
        self._socket.close()
        self._process.returncode = 0  # it is not ours to wait for


_servers: list[ForkServer] = []  # one, or none yet
_lock = threading.Lock()


def fork_server(environment: Mapping[str, str]) -> ForkServer | None:
    """Return the server, which may have to be started.

    Args:
        environment: The variables of the process that is to be forked.

    Returns:
        None where a new Python has to be started: on other systems, and where
        libraries would not read some of these variables.
    """
    if sys.platform != "linux" or not (_is_open(1) and _is_open(2)):
        return None
    if _read_at_import(environment) != AT_IMPORT:
        return None
    with _lock:
        if _servers and _servers[0].has_ended():
            _servers.pop().end()
        if not _servers:
            _servers.append(ForkServer(environment))
        return _servers[0]


def absolute_path() -> list[str]:
    """Return ``sys.path``, with the working directory by its name."""
    return [str(entry) or os.getcwd() for entry in sys.path]


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {"OMP_NUM_THREADS": "1", **environment}
    return {
        name: value
        for name, value in variables.items()
        if value and name.startswith(READ_AT_IMPORT)
        if name not in READ_LATER
    }


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


AT_IMPORT = _read_at_import(os.environ)


def _end() -> None:
    with _lock:
        while _servers:
            _servers.pop().end()


def _forget() -> None:
    """Begin a fork of this process without a server."""
    global _lock
    _lock = threading.Lock()
    while _servers:
        _servers.pop().forget()


atexit.register(_end)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget)
