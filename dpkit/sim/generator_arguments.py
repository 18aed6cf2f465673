"""Which generator an operation on a simulated device draws from.

As on CUDA it has to be one of that type of device, and ``randperm`` takes one
of that very device.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from dpkit.sim.generators import simulated


@cache
def takes_generator(func: OpOverload) -> int | None:
    """Return the position of the generator that ``func`` takes, if any."""
    kinds = [str(argument.type) for argument in func._schema.arguments]
    places = [i for i, kind in enumerate(kinds) if "Generator" in kind]
    return places[0] if places else None


def with_plain_generator(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for ``func`` to run on the backings.

    Args:
        func: The operation.
        args: Its arguments; a generator in them may be simulated.
        kwargs: Those by name.
        device: The device that ``func`` runs on.

    Raises:
        RuntimeError: the generator is not of this type of device.
    """
    place = takes_generator(func)
    if place is None or device.type != "sim":
        return args, kwargs
    if kwargs.get("generator") is not None:
        inner = _inner(func, kwargs["generator"], device)
        return args, {**kwargs, "generator": inner}
    if place < len(args) and args[place] is not None:
        inner = _inner(func, args[place], device)
        return (*args[:place], inner, *args[place + 1 :]), kwargs
    return args, kwargs


def _inner(
    func: OpOverload, generator: torch._C.Generator, device: torch.device
) -> torch._C.Generator:
    """Return the plain generator in a simulated one; refuse any other."""
    found = simulated(generator)
    shown = generator.device if found is None else found.device
    one_device = func._schema.name == "aten::randperm"
    if one_device and (found is None or found.device != device):
        raise RuntimeError(
            f"Expected a '{device}' generator device but found '{shown}'"
        )
    if found is None:
        raise RuntimeError(
            f"Expected a '{device.type}' device type for generator but found "
            f"'{generator.device.type}'"
        )
    return found.inner
