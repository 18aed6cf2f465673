"""What ranks would have contributed that do not run, but are alike.

It is a copy of what the rank that runs contributes, on another device. It has
shapes, and the values of small integers; it takes no time to make, and no
memory.
"""

from typing import Any

import torch
from torch import Tensor

from dpkit.runs.ranks.pending import Contribution
from dpkit.sim.devices import simulation
from dpkit.sim.kernels.uncharged import copy_to


def stand_in(own: Contribution, rank: int, kind: str) -> Contribution:
    """Return what a rank would have contributed, at the same moment."""
    tensors: Any = rank if kind == "barrier" else own.tensors
    if kind == "scatter":  # all but the root give nothing
        tensors = tensors[0], []
    elif kind == "gather":
        tensors = [], tensors[1]
    with simulation.memory.paused():
        copies = _copies_for(rank, tensors)
    return Contribution(rank, copies, _device_for(rank, own.device), own.begin)


def copy_for(rank: int, x: Tensor) -> Tensor:
    """Return what a rank would have contributed in place of a tensor."""
    return copy_to(_device_for(rank, x.device), x)


def _copies_for(rank: int, value: Any) -> Any:
    if isinstance(value, Tensor):
        return copy_for(rank, value)
    if isinstance(value, (list, tuple)):
        return type(value)(_copies_for(rank, item) for item in value)
    return value


def _device_for(rank: int, own: torch.device) -> torch.device:
    return torch.device("sim", rank) if own.type == "sim" else own
