"""A child that a program forks ends where the program ends, as in Python.

What comes after the program is for the process of the rank alone, such as to
leave a value::

    os.fork() ──▶  child: the rest of the program, and the end of Python
       │
       ▼
    the rest of the program, the value of the rank, its next job
"""

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def ending_children() -> Iterator[None]:
    """End here a process that was forked inside of the block."""
    own = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != own:
            _end(error)
        raise
    if os.getpid() != own:
        _end(None)


def exit_status(end: SystemExit) -> int:
    """Return the status by which Python ends: 1 for words, or a loss."""
    if end.code is None:
        return 0
    return end.code & 0xFF if isinstance(end.code, int) else 1


def finish_program() -> None:
    """Do what Python does where a program ends: wait for its threads first."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def flush_output() -> None:
    """Write what was printed; a program may have closed its output."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # None; or it is closed
            stream.flush()


def _end(error: BaseException | None) -> NoReturn:
    """End this process as Python does at the end of a program."""
    status = 0
    if isinstance(error, SystemExit):
        status = exit_status(error)
        if not isinstance(error.code, int | None):  # as of sys.exit("…")
            print(error.code, file=sys.stderr)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    finish_program()
    flush_output()
    os._exit(status)
