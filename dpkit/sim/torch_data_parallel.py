"""``torch.nn.DataParallel``: on the CPU as ever, on simulated devices not.

It copies from GPU to GPU by functions of CUDA. Once there is a backend from
outside it would choose that, also for a module on the CPU.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

import torch
from torch import nn

# torch.nn.parallel.data_parallel is a function, not this module.
MODULE = sys.modules[nn.DataParallel.__module__]
_init: Any = nn.DataParallel.__init__
_forward: Any = nn.DataParallel.forward
_available: Any = vars(MODULE)["_get_available_device_type"]


def available() -> str | None:
    """Return the kind of device that it may copy between."""
    kind: str | None = _available()
    return None if kind == "sim" else kind


def check(module: nn.Module, devices: Any = None) -> None:
    """Refuse a module, or devices, of the simulation.

    Raises:
        NotImplementedError: one of them is simulated.
    """
    tensors = chain(module.parameters(), module.buffers())
    named = [x for x in devices or [] if isinstance(x, (str, torch.device))]
    for device in [*(t.device for t in tensors), *map(torch.device, named)]:
        if device.type == "sim":
            raise NotImplementedError(
                "torch.nn.DataParallel copies by functions of CUDA (device: "
                f"{device}); dpkit.DataParallel(module, devices) does the "
                "same on simulated devices"
            )


def init(
    self: Any, module: nn.Module, device_ids: Any = None, *args: Any, **kw: Any
) -> None:
    """Stand in for ``DataParallel.__init__``."""
    check(module, device_ids)
    _init(self, module, device_ids, *args, **kw)


def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand in for ``DataParallel.forward``; the module may have moved."""
    check(self.module)
    return _forward(self, *args, **kwargs)
