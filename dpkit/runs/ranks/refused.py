"""What is for a process alone, and is refused in the program of a rank."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from torch.distributed import distributed_c10d as c10d

from dpkit.sim.changes import replaced
from dpkit.sim.streams import thread

_REFUSED: list[tuple[Any, str, str]] = [
    (
        signal,
        "signal",
        "ranks are threads, and a process hears signals in its main thread "
        "alone; set what is to be called before dpkit.sim.launch",
    ),
    (
        c10d,
        "rendezvous",
        "a rank of dpkit.sim.launch has its process group from the start, and "
        "after destroy_process_group no other; dist.new_group makes groups of "
        "some ranks",
    ),
]


def _elsewhere(original: Callable[..., Any], why: str) -> Callable[..., Any]:
    """Return a function that ranks alone cannot call."""

    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if thread.rank is not None:
            raise RuntimeError(why)
        return original(*args, **kwargs)

    return run


def refuse_in_ranks(stack: ExitStack) -> None:
    """Refuse what ranks cannot do, until a stack ends."""
    for owner, name, why in _REFUSED:
        new = _elsewhere(getattr(owner, name), why)
        stack.callback(replaced(owner, name, new).apply())
