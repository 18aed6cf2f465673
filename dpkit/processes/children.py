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
from collections.abc import Iterator
from contextlib import contextmanager
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


def _end(error: BaseException | None) -> NoReturn:
    """End this process as Python does at the end of a program."""
    status: object = 0
    if isinstance(error, SystemExit):
        status = error.code or 0
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    atexit._run_exitfuncs()
    if not isinstance(status, int):  # the words of sys.exit("…")
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)
