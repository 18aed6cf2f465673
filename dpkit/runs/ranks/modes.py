"""What PyTorch's dispatch modes see of a process group.

A mode, such as ``CommDebugMode``, is asked before each operation of PyTorch
in its block. With gloo and NCCL the collectives are among these, because C++
calls them as operations of the namespace ``c10d``. A group in Python is called
directly. So it shows its calls to the modes itself::

    dist.all_reduce(x) ─▶ RankGroup.allreduce ─▶ the mode: "c10d.allreduce_"
                                                    │ calls what it was shown
                                                    ▼
                                                 RankGroup.allreduce, with the
                                                 modes that are left
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils._python_dispatch import _pop_mode_temporarily

Method = Callable[..., Any]


class DispatchedCall:
    """A call of a group, which passes for an operation of ``c10d``."""

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self._operation = getattr(torch.ops.c10d, name).default
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self._run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)

    def __eq__(self, other: object) -> bool:
        return bool(self._operation == other)

    def __hash__(self) -> int:
        return hash(self._operation)

    def __repr__(self) -> str:
        return str(self._operation)


def dispatched_as(name: str) -> Callable[[Method], Method]:
    """Return a decorator for a method that modes see as ``c10d.<name>``.

    Without a mode the method is called as it is.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch._C._len_torch_dispatch_stack():
                return method(self, *args, **kwargs)

            def run_with_the_others(*args: Any, **kwargs: Any) -> Any:
                return run(self, *args, **kwargs)

            shown = DispatchedCall(name, run_with_the_others)
            with _pop_mode_temporarily() as mode:
                return mode.__torch_dispatch__(shown, (), args, kwargs)

        return run

    return decorate
