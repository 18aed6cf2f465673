"""The fork server: a Python that has imported torch, and forks others.

A new Python takes two seconds of a processor to import torch, and one more
before the first step of an optimizer; a forked one a hundredth of that::

    the caller                     the server                  a process
      │ starts it, once ─────────▶ imports torch
      │ a command, its files ────▶ forks ────────────────────▶ runs it
      ◀── the process's number ─── │                             │
      ◀── how it ended ─────────── │ ◀───────────────────────── ends
      ╳ ─────────────────────────▶ kills all, removes their folders, ends

The caller does not fork itself: autograd and CUDA refuse to work in a fork of
a process that has used them. The server uses neither. ``forking`` has the
caller's side.
"""

import ctypes
import gc
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing.connection import Connection
from types import ModuleType

PR_SET_PDEATHSIG = 1
# While the server imports, torch may ask for GPUs: it is to find none, and
# not to look for them by CUDA, which no fork could then use.
WITHOUT_CUDA = {
    "CUDA_VISIBLE_DEVICES": "",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


@dataclass(frozen=True)
class Command:
    """What a forked process is to run, as ``python -c program arguments``."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    cwd: str
    path: list[str]  # its sys.path
    removes: str | None = None  # a folder that goes with the caller


@dataclass(frozen=True)
class Child:
    """A process that was forked and has not ended."""

    connection: Connection  # to the caller
    command: Command


def import_all() -> None:
    """Import what ranks use, and what torch imports when it first needs it."""
    import torch
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    import dpkit.processes  # noqa: F401

    p = torch.nn.Parameter(torch.zeros(3))
    p.grad = torch.zeros(3)
    torch.optim.SGD([p], 0.1, 0.9).step()


def serve(requests: socket.socket) -> None:
    """Fork a process for each command, until the caller has ended."""
    import_all()
    gc.freeze()  # or every process would look through all of it
    children: dict[int, Child] = {}
    woken, wakes = socket.socketpair()  # woken when a child ends
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno())
    requests.send(b"ready")
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _bury(children)
        if requests in ready:
            message, files, _, _ = socket.recv_fds(requests, 1, 4)
            if not message:
                break
            connection = Connection(files[0])
            with suppress(EOFError):  # the caller was interrupted
                _do(connection, files[1:], children, [requests, woken, wakes])
            for file in files[1:]:
                os.close(file)
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    for pid, child in children.items():
        os.waitpid(pid, 0)
        if child.command.removes:
            shutil.rmtree(child.command.removes, ignore_errors=True)


def _do(
    connection: Connection,
    files: list[int],
    children: dict[int, Child],
    sockets: list[socket.socket],
) -> None:
    """Fork a process for a command; a text is run here, for all of them."""
    command = connection.recv()
    if isinstance(command, str):
        exec(command, {})
        gc.freeze()
        connection.send(None)
        return
    server = os.getpid()
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in sockets:
            end.close()
        for other in [connection, *_connections(children)]:
            other.close()
        try:
            _become(command, files, server)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    children[pid] = Child(connection, command)
    with suppress(ConnectionError):
        connection.send(pid)


def _connections(children: dict[int, Child]) -> list[Connection]:
    return [child.connection for child in children.values()]


def _bury(children: dict[int, Child]) -> None:
    """Report each process that has ended to the caller."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            break
        child = children.pop(pid)
        with child.connection, suppress(ConnectionError):
            child.connection.send(os.waitstatus_to_exitcode(status))


def _become(command: Command, files: list[int], server: int) -> None:
    """Run a command in this process, as a new Python would, and end it."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before we asked
        os._exit(1)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(command.cwd)
    os.environ.clear()
    os.environ.update(command.environment)
    time.tzset()
    tempfile.tempdir = None
    if "numpy" in sys.modules:  # the module random sees to itself
        sys.modules["numpy"].random.seed(random.randrange(2**32))
    assert isinstance(sys.stdout, TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    sys.path[:] = command.path
    sys.argv[:] = ["-c", *command.arguments]
    main = sys.modules["__main__"] = ModuleType("__main__")
    status = _run(command.program, main)
    # Wait for the other threads, as Python does, and multiprocessing.
    threading._shutdown()  # type: ignore[attr-defined]
    with suppress(OSError, ValueError):  # nobody reads, or it is closed
        sys.stdout.flush()
    os._exit(status)  # and leave thousands of modules as they are


def _run(program: str, main: ModuleType) -> int:
    """Return the exit status of a program."""
    try:
        exec(compile(program, "<string>", "exec"), vars(main))
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        error = error.with_traceback(trace and trace.tb_next)
        traceback.print_exception(error)
        return 1
    return 0


def run_server() -> None:
    """Serve the caller at the other end of a socket."""
    with suppress(ConnectionError):  # it has ended while we imported
        serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
