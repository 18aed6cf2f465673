"""What PyTorch does on the CPU: another use of what is copied there."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from dpkit.sim.operators.operations import OpCall
from dpkit.sim.operators.record import operator_of


class HostWatch(TorchDispatchMode):
    """Shows the operations of a thread before they run.

    Not what NumPy does, nor what is printed.
    """

    def __init__(self, see: Callable[[OpCall], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._see(OpCall(operator_of(func), args, kwargs or {}))
        return func(*args, **(kwargs or {}))
