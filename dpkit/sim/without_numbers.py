"""Reading where there are no numbers: ``configure(backing="meta")``.

Such a machine computes shapes, memory and time. What would need a number is
refused: to read one, to print them, or a shape that depends on them. A copy
to the CPU takes its time, and is a tensor of torch's own device ``meta``,
which has no numbers either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from dpkit.sim.work import host_waits

aten = torch.ops.aten


def no_numbers(device: torch.device) -> RuntimeError:
    """Return the error for reading from ``device``."""
    return RuntimeError(
        f"there are no numbers to read (device: {device}, backing: 'meta'); "
        "torch.sim.synchronize() waits without reading"
    )


def check_readable(func: OpOverload, args: Sequence[Any]) -> None:
    """Refuse an operation that needs numbers.

    Raises:
        RuntimeError: what comes out depends on numbers, or it would write
            them to the CPU.
    """
    reads = host_waits(func, args)
    if func is aten.copy_.default and args[0].device.type == "cpu":
        reads = True
    if reads:
        device = next(
            x.device for x in args if getattr(x, "backing", None) is not None
        )
        raise no_numbers(device)
