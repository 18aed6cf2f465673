"""Free the tensors that nobody can use any more, before memory is judged.

Two things keep a tensor alive after its last use:

- a reference cycle, such as a graph of autograd that backward has not
  consumed, until Python collects garbage;
- the error that was shown last. Python keeps it in ``sys.last_value``, for
  ``%debug``, with the variables of every function that it passed through.
"""

import gc
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress

from dpkit.sim.memory.accounting import Memory

# Generators and coroutines may go on after an error, and need their variables.
RESUMED = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
)
# Two have been needed: for a layer of FSDP2 after a failed forward.
MOST_PASSES = 5


def collect_garbage(memory: Memory) -> None:
    """Free what only reference cycles keep alive on simulated devices.

    A graph of autograd, which is C++, can stand between two cycles. Python
    sees the second one only when it has freed the first: so it looks again.
    """
    for _ in range(MOST_PASSES):
        if not (any(memory.live) and gc.collect()):
            return


def forget_last_error() -> None:
    """Delete the variables that the error shown last keeps alive."""
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    for error in _with_causes(last):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_flags & RESUMED:
                continue
            with suppress(RuntimeError):  # it is still running
                frame.clear()
                # Before Python 3.13 a frame also has a copy of its variables,
                # if somebody has looked at them. To look again renews it.
                _ = frame.f_locals


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from or after."""
    found = [error]
    seen = set[int]()
    while found:
        one = found.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            found += [one.__cause__, one.__context__]
