"""Layers cut into parts, one for each device: sizes, parameters, modules."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dpkit.arguments import (
    Devices,
    check_kind,
    check_shaped,
    device_list,
)
from dpkit.collectives import planned_allreduce
from dpkit.units import check_whole

Pick = Callable[[nn.Parameter], Tensor]


class SplitModule(nn.Module):
    """A module of which each device has a part, ``parts[rank]``."""

    parts: nn.ModuleList

    def copies(self) -> list[list[nn.Parameter]]:
        """Return the groups of parameters that are copies of one."""
        return []

    def full_tensors(self, pick: Pick) -> dict[str, Tensor]:
        """Return the tensors of the layer before it was split, by name.

        ``pick`` takes a parameter and returns it, or its gradient.
        """
        return {
            name: joined([pick(p.get_parameter(name)) for p in self.parts])
            for name, _ in self.parts[0].named_parameters()
        }


def check_layer(
    name: str,
    layer: object,
    kind: type[nn.Module],
    devices: Devices,
    algorithm: str,
) -> None:
    """Raise an error for a layer of another kind, or for an allreduce.

    Args:
        name: The argument that the layer is, for the error.
        layer: What is to be split.
        kind: What it has to be, such as ``nn.Linear``.
        devices: k devices.
        algorithm: That of the allreduces, which has to fit k ranks.
    """
    check_kind(name, layer, kind)
    check_shaped(name, layer)
    planned_allreduce(algorithm, len(device_list(devices, least=1)))


def even_sizes(length: int, count: int) -> list[int]:
    """Return the sizes of ``count`` parts, the first ones larger by one."""
    # 7 in 3 parts: 7 // 3 = 2 each, and one more for the first 7 % 3 = 1.
    return [length // count + (i < length % count) for i in range(count)]


def check_plain(
    layer: nn.Module, what: str, plain: Mapping[str, object]
) -> None:
    """Raise ValueError for an option of a layer that is not split here.

    ``plain`` has the one value that is possible for each option; ``what`` is
    the layer's kind, for the error.
    """
    for name, value in plain.items():
        found = getattr(layer, name)
        if found is not value and found != value:
            shown = "given" if isinstance(found, Tensor) else found
            raise ValueError(
                f"{what} of this kind is not split ({name}: {shown}, "
                f"possible: {value})"
            )


def checked_sizes(
    sizes: Sequence[int] | None, length: int, what: str, devices: Devices
) -> list[int]:
    """Return how many things each device has, once that is known to fit.

    Args:
        sizes: How many each device is to have; None: evenly.
        length: How many there are.
        what: What they are, for the error: "heads", "output channels".
        devices: k devices.

    Raises:
        ValueError: there are fewer things than devices, or ``sizes`` do not
            give each device one or more and add up to ``length``.
    """
    num_devices = len(device_list(devices, least=1))
    if length < num_devices:
        raise ValueError(
            f"too few {what} for each device to have one "
            f"({what}: {length}, devices: {num_devices})"
        )
    if sizes is None:
        return even_sizes(length, num_devices)
    check_kind("sizes", sizes, Sequence)
    sizes = list(sizes)
    for size in sizes:
        check_whole("sizes", size)
    if len(sizes) != num_devices or sum(sizes) != length or min(sizes) < 1:
        raise ValueError(
            f"the sizes do not give each device some of the {what} (sizes: "
            f"{sizes}, {what}: {length}, devices: {num_devices})"
        )
    return sizes


def shards_of(
    parameter: Tensor, sizes: Sequence[int], devices: Devices, dim: int = 0
) -> list[nn.Parameter]:
    """Return one part of a parameter for each device, in its own memory.

    Args:
        parameter: The whole, of any shape.
        sizes: How long each part is along ``dim``.
        devices: As many as there are sizes: part r lies on ``devices[r]``.
        dim: The dimension that is cut.
    """
    parts = parameter.detach().split(list(sizes), dim)
    return [
        _parameter_like(parameter, part, device)
        for part, device in zip(parts, devices, strict=True)
    ]


def rows_of(
    layer: nn.Linear | nn.Conv2d, sizes: Sequence[int], devices: Devices
) -> list[tuple[nn.Parameter, nn.Parameter | None]]:
    """Return each device's rows of weight and bias; None without a bias."""
    weights = shards_of(layer.weight, sizes, devices)
    if layer.bias is None:
        return [(weight, None) for weight in weights]
    return list(zip(weights, shards_of(layer.bias, sizes, devices)))


def replicas_of(parameter: Tensor, devices: Devices) -> list[nn.Parameter]:
    """Return one copy of a parameter for each device."""
    whole = parameter.detach()
    return [_parameter_like(parameter, whole, device) for device in devices]


def _parameter_like(
    parameter: Tensor, values: Tensor, device: torch.device
) -> nn.Parameter:
    """Return the values as a parameter, trained if the given one is."""
    own = values.contiguous().to(device, copy=True)
    return nn.Parameter(own, requires_grad=parameter.requires_grad)


def joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Return the shards as one tensor on the CPU."""
    return torch.cat([tensor.detach().cpu() for tensor in tensors], dim)
