"""Count the bytes that a piece of code copies from device to device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class Traffic(TorchDispatchMode):
    """Count the bytes of all copies between two devices in a block.

    Attributes:
        sent: The bytes that each device sent.
        received: The bytes that each device received.

    Example:
        >>> import dpkit, torch
        >>> from dpkit.lab.traffic import Traffic
        >>> zero, one = dpkit.devices(2, kind="sim")
        >>> x = torch.zeros(5, 3, device=zero)  # 15 numbers of 4 bytes
        >>> with Traffic() as traffic:
        ...     y = x.to(one)
        >>> traffic.sent[zero], traffic.received[one], traffic.sent[one]
        (60, 60, 0)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent: Counter[torch.device] = Counter()
        self.received: Counter[torch.device] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is aten._to_copy.default:
            self._count(args[0], out)
        elif func is aten.copy_.default:
            self._count(args[1], out)
        return out

    def _count(self, source: torch.Tensor, target: torch.Tensor) -> None:
        if source.device != target.device:
            self.sent[source.device] += source.nbytes
            self.received[target.device] += source.nbytes
