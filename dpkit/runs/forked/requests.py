"""The connection on which a rank asks for what happens in the parent.

Most requests have no answer: they are collected, and sent together when there
are many, or before a question, which waits for its answer.
"""

import os
import pickle
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from dpkit.runs.forked.signals import WholeRequests

MOST_COLLECTED = 1000  # requests that are collected

# A request: its name, a key of ``ORDERS`` or ``QUESTIONS`` in ``proxy``, and
# its arguments.
Request = tuple[str, tuple[Any, ...]]


class DisconnectedError(Exception):
    """The other process has ended, or has closed the connection."""


def write_message(connection: Connection, message: Any) -> None:
    """Send a message, with a copy of each tensor in it.

    Raises:
        DisconnectedError: nobody reads it.
    """
    # Connection.send would share the memory of tensors, and that ends with
    # the process of the sender.
    packed = pickle.dumps(message)
    try:
        connection.send_bytes(packed)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise DisconnectedError from error


def read_message(connection: Connection) -> Any:
    """Wait for a message, and return it.

    Raises:
        DisconnectedError: none will come.
    """
    try:
        packed = connection.recv_bytes()
    except (EOFError, ConnectionResetError) as error:
        raise DisconnectedError from error
    return pickle.loads(packed)


class RankEnded(BaseException):
    """Raised in a rank that cannot go on because of another.

    It is no ``Exception``: what a program does about its own errors should
    not keep the rank going.
    """


class Requests:
    """What a rank sends to the parent, over one end of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._collected: list[Request] = []
        self._lock = threading.RLock()
        self.whole = WholeRequests()
        self._ended = ""  # why the rank cannot go on, once it cannot
        self._process = os.getpid()

    def add(self, name: str, *args: Any) -> None:
        """Ask for something that has no answer."""
        with self._lock:
            self._collected.append((name, args))
            if len(self._collected) >= MOST_COLLECTED:
                self.send()

    def add_later(self, name: str, *args: Any) -> None:
        """Ask for something that has no answer, and send it at another time.

        This is safe where Python frees objects, which may be at any moment.
        """
        self._collected.append((name, args))

    def send(self) -> None:
        """Send what was collected.

        Raises:
            RuntimeError: as for :meth:`check_process`.
        """
        self.check_process()
        with self.whole, self._lock:
            collected = self._collected
            self._collected = []
            if collected and not self._ended:
                write_message(self._connection, collected)

    def close_in_child(self) -> None:
        """Leave the connection to the rank, in a process that it has forked.

        The lock may be held by a thread that this process does not have.
        """
        self._connection.close()
        self._lock = threading.RLock()

    def check_process(self) -> None:
        """Check that this process speaks for the rank.

        Raises:
            RuntimeError: it does not, but was forked by the rank, such as the
                worker of a ``DataLoader``.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "a process that a rank has forked cannot use its simulated "
                "devices, as on CUDA (in the worker of a DataLoader?); the "
                "program of the rank can"
            )

    def end(self, outcome: Any) -> None:
        """Send how the program of the rank has ended, as the last request.

        Raises:
            RuntimeError: as for :meth:`check_process`.
        """
        self.check_process()
        parent_gone = suppress(DisconnectedError)
        with self.whole, self._lock, parent_gone:
            last = [*self._collected, ("end", (outcome,))]
            write_message(self._connection, last)
            self._ended = self._ended or "its program is over"

    def ask(self, name: str, *args: Any) -> Any:
        """Return the answer to a question.

        Raises:
            RankEnded: the rank cannot go on.
            RuntimeError: as for :meth:`check_process`.
            Exception: what the parent has raised.
        """
        self.check_process()
        with self.whole, self._lock:
            if self._ended:
                raise RankEnded(self._ended)
            self.add(name, *args)
            self.send()
            # What ends this here leaves an answer that nobody has read.
            self._ended = "interrupted"
            kind, value = read_message(self._connection)
            self._ended = value if kind == "ended" else ""
        if kind == "ended":
            raise RankEnded(value)
        if kind == "error":
            raise value
        return value
