"""Replicas of a module, whose gradients flow back into its parameters.

    module.weight, on devices[0] ─┬──────────────▶ replica 0 is the module
                                  ├─ copy ───────▶ replica 1, on devices[1]
                                  └─ copy ───────▶ replica 2, on devices[2]

A copy is an operation like others: backward goes through it, takes the
gradient back to devices[0] and adds it to what the other replicas give.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn


def replicate_module(
    module: nn.Module, devices: Sequence[torch.device]
) -> list[nn.Module]:
    """Return a replica of a module on each device; the first is itself.

    The other replicas share with it all but parameters, buffers and modules,
    which are copied, even to the same device. They are made for one forward:
    what it sets in them is lost.
    """
    return [module] + [_copy(module, device) for device in devices[1:]]


def _copy(module: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy of a module and all that it consists of."""
    copies: dict[Any, Any] = {  # one each, though it be held in two places
        tensor: tensor.to(device, copy=True)
        for tensor in chain(module.parameters(), module.buffers())
    }
    modules = list(module.modules())
    copies |= {m: object.__new__(type(m)) for m in modules}
    for m in modules:
        state = vars(copies[m])
        state.update(vars(m))
        for kind in ("_parameters", "_buffers", "_modules"):
            held = state[kind].items()
            state[kind] = {name: copies.get(x, x) for name, x in held}
    replica: nn.Module = copies[module]
    return replica
