"""Which simulated device ``cuda:1`` is, and what a program sees of one.

A rank sees the devices of its node, numbered from 0, as a process does that
torchrun has started. Ranks 0 to 3 are on two nodes of two devices::

    sim:0  sim:1   sim:2  sim:3
    cuda:0 cuda:1  cuda:0 cuda:1
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import torch

from dpkit.sim.devices import device_count, device_of, simulation
from dpkit.sim.streams import thread

# Packages whose code sees simulated devices as such.
INSIDE = ("torch", "torchvision", "dpkit")
VISIBLE = "CUDA_VISIBLE_DEVICES"
_CUDA = re.compile(r"cuda(:\d+)?")


def is_inside(depth: int = 2) -> bool:
    """Return whether the code that has called is PyTorch's or dpkit's.

    Args:
        depth: How many calls lie between that code and this function.
    """
    return _is_of_inside(sys._getframe(depth).f_globals.get("__name__"))


@cache
def _is_of_inside(module: object) -> bool:
    return str(module).partition(".")[0] in INSIDE


def first_device() -> int:
    """Return the number of the simulated device that is ``cuda:0``."""
    per_node = simulation.clock.cluster.ranks_per_node
    if thread.rank is None or per_node is None:
        return 0
    return thread.rank // per_node * per_node


def _on_node() -> range:
    """Return the numbers of the simulated devices of a program's node."""
    per_node = simulation.clock.cluster.ranks_per_node
    first = first_device()
    last = device_count()
    if thread.rank is not None and per_node is not None:
        last = min(first + per_node, last)
    return range(first, last)


class _Variable:
    """What CUDA_VISIBLE_DEVICES was: when the block began, and last."""

    at_first: str | None = None
    last: str | None = None


def begin() -> None:
    """Note what the variable is: only the program's own choice counts."""
    _Variable.at_first = _Variable.last = os.environ.get(VISIBLE)


def visible() -> Sequence[int]:
    """Return the simulated devices that a program sees, in its order.

    They are those of its node that CUDA_VISIBLE_DEVICES names. As in CUDA,
    the first that is not there ends the list. The ranks of a launch share the
    variable, so that it counts for none of them.
    """
    # Rank 2 of four, on nodes of two: its node has sim:2 and sim:3.
    #
    #     variable    not set     "1"     "1,0"         "1,7,0"
    #     cuda:0 …    sim:2, 3    sim:3   sim:3, 2      sim:3
    found = _on_node()
    value = os.environ.get(VISIBLE)
    shares = thread.rank is not None and not thread.is_process
    if value is None or value == _Variable.at_first or shares:
        return found
    by_name = {str(k): number for k, number in enumerate(found)}
    names = [name.strip() for name in value.split(",")]
    chosen = [by_name[name] for name in takewhile(by_name.__contains__, names)]
    if value != _Variable.last:  # the current device is the first of them
        _Variable.last = value
        if chosen and simulation.current_device not in chosen:
            simulation.current_device = chosen[0]
    return chosen


def visible_count() -> int:
    """Return how many devices a program sees."""
    return len(visible())


def visible_numbers() -> list[int]:
    """Return the numbers of these devices."""
    return [*range(visible_count())]


def simulated(value: Any) -> Any:
    """Return the simulated device for a CUDA device, all else as it is.

    ``torch.device(1)`` is ``sim:1`` where a program makes it. If that is none
    of its node's, the program means the number as one of CUDA's.

    Args:
        value: A device, or its name, or anything else that a function takes.
    """
    if type(value) is str:
        if not _CUDA.fullmatch(value):
            return value
        value = torch.device(value)
    elif type(value) is not torch.device:
        return value
    kind, index = value.type, value.index
    if kind == "cuda" and index is None:
        visible()  # the current device is one of these
        return torch.device("sim")
    if kind == "cuda":
        return _numbered(index)
    if kind == "sim" and index is not None and index < first_device():
        return _numbered(index)
    return value


def simulated_number(value: Any) -> Any:
    """Return a device for a number as well, which is one of CUDA's."""
    if type(value) is int and value >= 0:
        return _numbered(value)
    return simulated(value)


def _numbered(index: int) -> torch.device:
    """Return the simulated device that has a number of CUDA's.

    Raises:
        RuntimeError: the program does not see so many devices.
    """
    there = visible()
    if index >= len(there):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal (device: cuda:{index}, "
            f"simulated devices that this process sees: {len(there)})"
        )
    return torch.device("sim", there[index])


def number_seen(number: int) -> int:
    """Return the number that a program has for a simulated device.

    A device that it does not see has the number of its place on the node.
    """
    there = visible()
    if number in there:
        return there.index(number)
    return number - first_device()


def simulated_kind(value: Any) -> Any:
    """Return "sim" for "cuda", where a kind of device is named."""
    return "sim" if value == "cuda" else value


def seen(device: torch.device) -> torch.device:
    """Return what a program sees of a device."""
    if device.type != "sim":
        return device
    if device.index is None:
        return torch.device("cuda")
    number = number_seen(device.index)
    return torch.device("cuda", number) if number >= 0 else device


def seen_kind(kind: str) -> str:
    """Return "cuda" for "sim", where a kind of device is named."""
    return "cuda" if kind == "sim" else kind


def gpu_called(device: int) -> tuple[str, str]:
    """Return what errors call a device: its kind, and its own name."""
    return "CUDA", f"GPU {number_seen(device)}"


def _device_of(tensor: Any) -> torch.device:
    device = device_of(tensor)
    return device if device.type != "sim" or is_inside() else seen(device)


_is_cuda: Any = vars(torch._C.TensorBase)["is_cuda"]


def _is_on_cuda(tensor: Any) -> bool:
    if device_of(tensor).type == "sim":
        return not is_inside()
    return bool(_is_cuda.__get__(tensor))


#: What takes the places of two attributes of tensors.
device_of_tensor = property(_device_of)
is_cuda_of_tensor = property(_is_on_cuda)
