"""An error raised inside backward reaches the caller of backward.

An exception that leaves ``__torch_dispatch__`` while PyTorch's autograd engine
is on the stack ends the whole process. So during backward the first exception
is kept, the engine gets zeros of a fitting shape to carry on with, and the
exception is raised when the engine has come to its end.
"""

from __future__ import annotations

import torch
from torch.autograd import Variable

_kept: dict[int, Exception] = {}  # the first exception of each backward


def in_backward() -> bool:
    """Tell whether the autograd engine called the operation at hand."""
    return bool(torch._C._current_graph_task_id() != -1)


def raise_after_backward(error: Exception) -> None:
    """Keep ``error``; raise it when the current backward has ended.

    Later errors of the same backward follow from the first, and are dropped.
    """
    task = torch._C._current_graph_task_id()
    if task in _kept:
        return
    _kept[task] = error
    Variable._execution_engine.queue_callback(lambda: _raise(task))


def _raise(task: int) -> None:
    error = _kept.pop(task)
    try:
        raise error
    finally:
        del error  # else the traceback's frames would keep it alive
