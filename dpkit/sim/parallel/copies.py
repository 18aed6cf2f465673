"""The functions of PyTorch's C++ by which tensors get to several devices.

They stand in ``torch._C``, where PyTorch has those for CUDA, and do what these
do. The words of their errors are CUDA's, too.

Source: ``torch/csrc/cuda/comm.cpp`` of PyTorch.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch._utils import (
    _flatten_dense_tensors,
    _reorder_tensors_as,
    _take_tensors,
    _unflatten_dense_tensors,
)

from dpkit.sim.devices import names
from dpkit.sim.devices.names import device_of, full_device
from dpkit.sim.streams.streams import SimStream, stream

THE_CPU = -1  # as the number of a destination

Streams = Sequence[SimStream | None] | None  # for each device one, or none


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Return the tensor on each device: a copy, or itself where it lies."""
    own = device_of(tensor)
    targets = map(_device, devices)
    return [
        tensor if target == own else tensor.to(target, non_blocking=True)
        for target in targets
    ]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    """Copy the tensor into others, which lie on devices."""
    _check_on_devices("output", out)
    for i, one in enumerate(out):
        if one.shape != tensor.shape:
            raise RuntimeError(
                "Expected all output tensors to have same shape as the source "
                f"tensor {list(tensor.shape)}, but output tensor at index {i} "
                f"has shape {list(one.shape)}"
            )
        one.copy_(tensor, non_blocking=True)
    return list(out)


def _broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    """Return all tensors on each device, sent in messages of several.

    Args:
        tensors: They lie on the first of the devices, and stay there as they
            are.
        devices: The numbers of the devices.
        buffer_size: The most bytes of a message that holds several tensors.
    """
    first = _device(devices[0])
    if any(device_of(tensor) != first for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    copies: list[list[Tensor]] = [[] for _ in devices[1:]]
    for group in _take_tensors(tensors, buffer_size):
        flat = _broadcast(_flatten_dense_tensors(group), devices)
        for copied, whole in zip(copies, flat[1:], strict=True):
            # By .data, or a change of one would count for all of a message.
            parts = _unflatten_dense_tensors(whole, group)
            copied += [part.data for part in parts]
    ordered = [list(_reorder_tensors_as(some, tensors)) for some in copies]
    return [list(tensors), *ordered]


def _scatter(
    tensor: Tensor,
    devices: Sequence[int],
    sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Streams = None,
) -> list[Tensor]:
    """Cut a tensor along a dimension, and return a part on each device.

    Args:
        tensor: On the CPU or on a device.
        devices: Their numbers. If there are fewer rows, the last get no part.
        sizes: Of the parts; None: as ``torch.chunk`` cuts.
        dim: The dimension.
        streams: The stream of each device that brings its part.
    """
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if sizes is not None and len(sizes) != len(devices):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = "
            f"{len(sizes)}"
        )
    if sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        parts = tensor.split_with_sizes([*sizes], dim)
    moved = []
    for i, part in enumerate(parts):
        with _issued_to(streams, i):
            moved.append(part.to(_device(devices[i]), non_blocking=True))
    return moved


def _scatter_out(
    tensor: Tensor,
    out: Sequence[Tensor],
    dim: int = 0,
    streams: Streams = None,
) -> list[Tensor]:
    """Cut a tensor along a dimension, and copy a part into each of others."""
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    _check_on_devices("output", out)
    parts = tensor.split_with_sizes([one.size(dim) for one in out], dim)
    for i, (one, part) in enumerate(zip(out, parts, strict=True)):
        with _issued_to(streams, i):
            one.copy_(part, non_blocking=True)
    return list(out)


def _gather(
    tensors: Sequence[Tensor], dim: int, destination: int | None
) -> Tensor:
    """Return tensors of several devices as one, joined along a dimension.

    Args:
        tensors: On devices; of one shape, except in this dimension.
        dim: The dimension.
        destination: The number of a device; -1 is the CPU.
    """
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    _check_on_devices("input", tensors)
    first = tensors[0]
    shape = list(first.shape)
    for i, tensor in enumerate(tensors):
        _check_shape(i, tensor, shape, dim)
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    target = torch.device("cpu")
    if destination != THE_CPU:
        target = _device(destination)
    whole = torch.empty(
        shape,
        dtype=first.dtype,
        device=target,
        memory_format=_common_format(tensors),
    )
    return _gather_out(tensors, whole, dim)


def _gather_out(
    tensors: Sequence[Tensor], out: Tensor, dim: int = 0
) -> Tensor:
    """Join tensors of several devices in another, along a dimension."""
    _check_on_devices("input", tensors)
    parts = out.split_with_sizes([one.size(dim) for one in tensors], dim)
    is_on_device = device_of(out).type != "cpu"
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor, non_blocking=is_on_device)
    return out


#: By the names that they have in ``torch._C``.
OF_COMM: dict[str, Callable[..., object]] = {
    "_broadcast": _broadcast,
    "_broadcast_out": _broadcast_out,
    "_broadcast_coalesced": _broadcast_coalesced,
    "_scatter": _scatter,
    "_scatter_out": _scatter_out,
    "_gather": _gather,
    "_gather_out": _gather_out,
}


def _device(number: int | None) -> torch.device:
    """Return the device of a number; None: the current one."""
    if number is None:
        return full_device(None)
    return full_device(names.read(torch.device("sim", number)))


def _issued_to(streams: Streams, i: int) -> AbstractContextManager[object]:
    """Return a block that issues to a stream, where one is named."""
    side = streams[i] if streams else None
    return nullcontext() if side is None else stream(side)


def _check_on_devices(role: str, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors on the CPU.

    Args:
        role: "input" or "output".
        tensors: Those that are to lie on devices.
    """
    which = "tensor" if role == "input" else "output tensor"
    for i, tensor in enumerate(tensors):
        device = device_of(tensor)
        if device.type == "cpu":
            shown = str(device) if role == "input" else f"'{device}'"
            raise RuntimeError(
                f"Expected all {role} tensors to be CUDA tensors, but {which} "
                f"at index {i} has device {shown}"
            )


def _check_shape(i: int, tensor: Tensor, shape: list[int], dim: int) -> None:
    """Refuse a tensor that differs from a shape in another dimension."""
    if tensor.dim() != len(shape):
        raise RuntimeError(
            "Expected all input tensors to have the same number of "
            f"dimensions, but tensor at index {i} has {tensor.dim()} "
            f"dimensions, (expected {len(shape)})"
        )
    expected = list(shape)
    expected[dim] = tensor.size(dim)
    if list(tensor.shape) != expected:
        raise RuntimeError(
            f"Input tensor at index {i} has invalid shape "
            f"{list(tensor.shape)}, but expected {expected}"
        )


def _common_format(tensors: Sequence[Tensor]) -> torch.memory_format:
    """Return "channels last" if all tensors lie so, else "contiguous"."""
    is_last = all(
        tensor.dim() == 4
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
        for tensor in tensors
    )
    return torch.channels_last if is_last else torch.contiguous_format
