"""Signals in the process of a rank: a request is never cut in half by one.

On GPUs a rank waits in C++, and Python calls the handler of a signal when that
has returned. So it is here: a handler is called when the parent has answered.
Else one that raises, such as a time limit of the script, would leave a message
of which a part is sent::

    dist.all_reduce(x)   sends a question … reads the answer │ handler raises
                                SIGALRM ─────────────────────┘
"""

import signal
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, NoReturn

from dpkit.sim.changes import replaced

SignalHandler = Callable[[int, FrameType | None], Any]


class EndSignal(KeyboardInterrupt):
    """A signal that ends a launch as Ctrl-C does, such as SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def raise_end_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal that is to end a launch, so that no rank is left."""
    raise EndSignal(number)


def signal_of(error: KeyboardInterrupt) -> int:
    """Return the signal that has ended a launch; by default Ctrl-C's."""
    if isinstance(error, EndSignal):
        return error.number
    return signal.SIGINT


class WholeRequests:
    """A block in which no handler of a signal is called, but after it.

    Blocks may lie in each other. Python calls handlers in the main thread, so
    for others this does nothing.
    """

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._depth = 0
        self._came: dict[int, tuple[SignalHandler, FrameType | None]] = {}

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != self._main:
            return
        self._depth -= 1
        while self._came and not self._depth:
            number = next(iter(self._came))
            handler, frame = self._came.pop(number)
            handler(number, frame)

    def after_requests(self, handler: SignalHandler) -> SignalHandler:
        """Return a handler that is called after a block."""

        @wraps(handler)
        def handle(number: int, frame: FrameType | None) -> None:
            if self._depth:
                self._came[number] = handler, frame  # once, as in Python
            else:
                handler(number, frame)

        return handle

    def begin(self) -> None:
        """Handle signals as a new Python does, and after blocks, for good.

        The handlers that this process has are those of its parent.
        """
        set_handler: Any = signal.signal
        get_handler: Any = signal.getsignal

        def set_later(number: int, handler: Any) -> Any:
            later = handler
            if callable(handler):
                later = self.after_requests(handler)
            before = set_handler(number, later)
            return getattr(before, "__wrapped__", before)

        def get_given(number: int) -> Any:
            handler = get_handler(number)
            return getattr(handler, "__wrapped__", handler)

        for number in signal.valid_signals():
            if callable(get_handler(number)):
                usual: Any = signal.SIG_DFL
                if number == signal.SIGINT:
                    usual = signal.default_int_handler
                set_later(number, usual)
        replaced(signal, "signal", set_later).apply()
        replaced(signal, "getsignal", get_given).apply()
