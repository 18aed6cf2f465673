"""Count what a piece of code sends from device to device."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Traffic(TorchDispatchMode):
    """Count all copies between two devices in a block, and their bytes.

    ``sent`` and ``received`` are the bytes of each device, ``messages`` the
    number of copies other than from or to the CPU, ``num_bytes`` their bytes.
    A collective of a library makes no copies, and is not counted; what it
    sends is in the spans of a trace.

    Example:
        >>> zero, one = dpkit.devices(2, kind="sim")
        >>> x = torch.zeros(5, 3, device=zero)  # 15 values of 4 bytes
        >>> with Traffic() as traffic:
        ...     y = x.to(one)
        >>> traffic.sent[zero], traffic.received[one], traffic.sent[one]
        (60, 60, 0)
        >>> traffic.messages, traffic.num_bytes
        (1, 60)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent: Counter[torch.device] = Counter()
        self.received: Counter[torch.device] = Counter()
        self.messages = 0
        self.num_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for source, target in _copies(func, args, out):
            if source.device != target.device:
                self.sent[source.device] += source.nbytes
                self.received[target.device] += source.nbytes
                if "cpu" not in (source.device.type, target.device.type):
                    self.messages += 1
                    self.num_bytes += source.nbytes
        return out


def sent(work: Callable[..., Any], *arguments: Any) -> tuple[int, int]:
    """Run some work; return the messages that devices sent, and their bytes.

    Copies from the CPU and to it are not counted.

    Args:
        work: The function to call.
        arguments: What it is called with.

    Example:
        >>> tensors = [torch.ones(3, 5, device=d)
        ...            for d in dpkit.devices(4, kind="sim")]
        >>> sent(dpkit.allreduce, tensors)  # by a ring
        (24, 360)
    """
    with Traffic() as traffic:
        work(*arguments)
    return traffic.messages, traffic.num_bytes


def _copies(func: Any, args: Any, out: Any) -> Iterable[tuple[Tensor, Tensor]]:
    """Return the source and the target of each copy that an operation is."""
    aten = torch.ops.aten
    if func is aten._to_copy.default:
        return [(args[0], out)]
    if func is aten.copy_.default:
        return [(args[1], args[0])]
    if func is aten._foreach_copy_.default:
        return zip(args[1], args[0])
    return []
