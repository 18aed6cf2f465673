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
    # nn.Module.compile gives a method, and puts what it gets where a module
    # looks for what is called. So is done here for each module inside, which
    # a checkpoint calls once more when backward runs.
    owner = getattr(model, "__self__", model)
    if isinstance(owner, nn.Module):
        for module in owner.modules():
            module._compiled_call_impl = _marked(module._call_impl)
    return model if isinstance(model, nn.Module) else _marked(model)


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _thread.depth += 1
        try:
            return function(*args, **kwargs)
        finally:
            _thread.depth -= 1

    return run
