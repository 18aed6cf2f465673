"""Parameters cut into shards, one for each device, or copied to all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpkit.arguments import device_list
from dpkit.theory.units import check_whole


def even_sizes(length: int, count: int) -> list[int]:
    """Return the sizes of ``count`` parts, the first ones larger by one.

    Example:
        >>> even_sizes(7, 3)
        [3, 2, 2]
    """
    return [length // count + (i < length % count) for i in range(count)]


def check_enough(
    length: int, what: str, devices: Sequence[torch.device]
) -> None:
    """Raise an error if it is no list, or a device would have nothing."""
    num_devices = len(device_list(devices))
    if num_devices < 1:
        raise ValueError("no devices to split a layer over (devices: 0)")
    if length < num_devices:
        raise ValueError(
            f"too few {what} for each device to have one "
            f"({what}: {length}, devices: {num_devices})"
        )


def checked_sizes(
    sizes: Sequence[int] | None,
    length: int,
    what: str,
    devices: Sequence[torch.device],
) -> list[int]:
    """Return how many of ``length`` each device has; None: evenly."""
    check_enough(length, what, devices)
    if sizes is None:
        return even_sizes(length, len(devices))
    for size in sizes:
        check_whole("sizes", size)
    if len(sizes) != len(devices) or sum(sizes) != length or min(sizes) < 1:
        raise ValueError(
            f"the sizes do not part the {what} among the devices (sizes: "
            f"{list(sizes)}, {what}: {length}, devices: {len(devices)})"
        )
    return list(sizes)


def shards_of(
    parameter: Tensor,
    sizes: Sequence[int],
    devices: Sequence[torch.device],
    dim: int = 0,
) -> list[nn.Parameter]:
    """Return one part of a parameter for each device, in memory of its own."""
    parts = parameter.detach().split(list(sizes), dim)
    return [
        _parameter_like(parameter, part, device)
        for part, device in zip(parts, devices, strict=True)
    ]


def replicas_of(
    parameter: Tensor, devices: Sequence[torch.device]
) -> list[nn.Parameter]:
    """Return one copy of a parameter for each device."""
    whole = parameter.detach()
    return [_parameter_like(parameter, whole, device) for device in devices]


def _parameter_like(
    parameter: Tensor, values: Tensor, device: torch.device
) -> nn.Parameter:
    """Return the values as a parameter, trained if the given one is."""
    own = values.contiguous().to(device, copy=True)
    return nn.Parameter(own, requires_grad=parameter.requires_grad)


def join(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return the shards as one tensor on the CPU."""
    return torch.cat([tensor.detach().cpu() for tensor in tensors], dim)
