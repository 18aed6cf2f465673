"""What PyTorch's checkpoints need of ranks that are threads.

``async_save`` saves in another thread. There it would find no process
group, and save as if it were alone: each rank over the file of another. So
the rank saves itself, before the call returns. Its program goes on as it
would, with a future that is done.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from typing import Any, NoReturn

import torch
from torch.distributed.checkpoint import (
    _async_process_executor,
    _async_thread_executor,
    filesystem,
)

from dpkit.runs.ranks.scheduler import Ended
from dpkit.sim.changes import replaced
from dpkit.sim.streams import kind_of_rank


class AtOnce(Executor):
    """What runs a function when it is submitted, in the same thread."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Return a future that has the value of the function, or its error."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Ended:
            raise
        except BaseException as error:  # such as a CheckpointException
            future.set_exception(error)
        return future


def _refuse_process(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "ranks of dpkit.sim.launch are threads of one process, which would "
        "share the process that saves (async_checkpointer_type: PROCESS); "
        "AsyncCheckpointerType.THREAD works"
    )


_CHANGES: list[tuple[Any, str, Any]] = [
    (_async_thread_executor, "ThreadPoolExecutor", AtOnce),
    (_async_process_executor, "ThreadPoolExecutor", _refuse_process),
    # PyTorch saves tensors of the kind of device that it finds first: of GPUs
    # where there are some. Ranks save simulated ones.
    (torch._utils, "_get_available_device_type", kind_of_rank),
    (filesystem, "_get_available_device_type", kind_of_rank),
]


def save_by_ranks(stack: ExitStack) -> None:
    """Have each rank save its own part, until a stack ends."""
    for owner, name, value in _CHANGES:
        stack.callback(replaced(owner, name, value).apply())
