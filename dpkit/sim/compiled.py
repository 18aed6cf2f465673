"""What a program has given to ``torch.compile``: known while it runs.

It runs as it is, an operation at a time. FlexAttention alone asks whether it
would be compiled: then it is one kernel on a GPU, else products and a softmax.
"""

from collections.abc import Callable
from functools import wraps
from threading import local
from typing import Any

from torch import nn


class _Thread(local):
    depth = 0  # how many such functions run, one inside of another


_thread = _Thread()


def runs_compiled() -> bool:
    """Return whether the code that runs would be compiled on a GPU."""
    return _thread.depth > 0


def as_compiled(model: Any) -> Any:
    """Return a function or module that says of itself that it is compiled.

    Args:
        model: What ``torch.compile`` was given. A module stays the same
            object, so that the names of its parameters stay.

    Example:
        >>> from dpkit.sim.compiled import as_compiled, runs_compiled
        >>> runs_compiled(), as_compiled(runs_compiled)()
        (False, True)
    """
    if isinstance(model, nn.Module):
        # Where nn.Module.compile, too, puts what is to be called.
        model._compiled_call_impl = _marked(model._call_impl)
        return model
    return _marked(model)


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _thread.depth += 1
        try:
            return function(*args, **kwargs)
        finally:
            _thread.depth -= 1

    return run
