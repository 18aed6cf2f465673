"""A rank that ends well by ``os._exit(0)`` reports before it does.

Scripts end so where a library would hold them back. Nothing runs after it.
"""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from dpkit.runs.forked.running import ForkedRank
from dpkit.sim.changes import replaced


def report_at_once(
    stack: ExitStack, here: ForkedRank, report: Callable[[], Any]
) -> None:
    """Have ``os._exit(0)`` report, until a stack ends.

    That is where the script itself calls it: not one of its children, and not
    another thread of it, while it may wait for other ranks.
    """
    end_process: Any = os._exit
    own = os.getpid()

    def end(status: int) -> NoReturn:
        """Stand in for ``os._exit``."""
        is_script = threading.current_thread() is threading.main_thread()
        if status == 0 and is_script and os.getpid() == own:
            with suppress(Exception):
                here.end(report())
        end_process(status)
        raise AssertionError  # it does not return

    stack.callback(replaced(os, "_exit", end).apply())
