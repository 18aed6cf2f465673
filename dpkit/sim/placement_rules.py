"""Which device an operation runs on, and which mixtures it refuses.

The rules are those of CUDA. Tensors of two devices do not mix, except:

- a CPU tensor without dimensions serves as a number, but is not written to,
  joined with others, or taken for an index;
- indices and masks may lie on the CPU;
- a copy reads one device and writes another;
- a list operation (``_foreach_…``) needs one device per position in the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

# These read one device and write another.
COPIES = {
    aten.copy_.default,
    aten._copy_from.default,
    aten._to_copy.default,
    aten._foreach_copy_.default,
    aten._foreach_copy.default,
}

# Operation -> the positions of arguments that may stay on the CPU.
CPU_ARGUMENTS = {
    aten.index.Tensor: {1},
    aten._unsafe_index.Tensor: {1},
    aten.index_put.default: {1},
    aten.index_put_.default: {1},
    aten._unsafe_index_put.default: {1},
    aten._index_put_impl_.default: {1},
    aten._pack_padded_sequence.default: {1},
    aten._pad_packed_sequence.default: {1},
    aten._foreach_addcmul.Tensor: {3},
    aten._foreach_addcmul_.Tensor: {3},
    aten._foreach_addcdiv.Tensor: {3},
    aten._foreach_addcdiv_.Tensor: {3},
}

# Operation -> the positions of results that stay on the CPU.
CPU_RESULTS = {aten._pack_padded_sequence.default: {1}}

# Operations that take no CPU tensor for a number.
NO_NUMBERS = {
    "cat",
    "embedding",
    "gather",
    "index_select",
    "nll_loss_forward",
    "scatter",
    "scatter_add",
    "stack",
    "take",
}


def common_device(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> torch.device:
    """Return the device that ``func`` runs on, given tensors of several.

    Raises:
        RuntimeError: two of them do not mix; in torch's own words.
    """
    if func in COPIES:
        return tensors_in(args[0])[0].device
    may_stay = CPU_ARGUMENTS.get(func, set())
    strict = [a for i, a in enumerate(args) if i not in may_stay]
    tensors = tensors_in([strict, kwargs])
    device = next((t.device for t in tensors if not is_cpu_number(t)), None)
    device = device or tensors[0].device
    numbers_serve = func._schema.name.removeprefix("aten::") not in NO_NUMBERS
    written = [id(t) for t in _written(func, args, kwargs)]
    for tensor in tensors:
        number = is_cpu_number(tensor) and id(tensor) not in written
        if tensor.device != device and not (number and numbers_serve):
            raise RuntimeError(mixture(device, tensor.device))
    for tensor in tensors_in([args[i] for i in may_stay if i < len(args)]):
        if tensor.device not in (device, torch.device("cpu")):
            raise RuntimeError(mixture(device, tensor.device))
    return device


def mixture(first: torch.device, second: torch.device) -> str:
    """Return the words in which torch refuses two devices."""
    return (
        "Expected all tensors to be on the same device, but found at least "
        f"two devices, {first} and {second}!"
    )


def is_cpu_number(tensor: torch.Tensor) -> bool:
    """Tell whether ``tensor`` lies on the CPU and has no dimensions."""
    return tensor.device.type == "cpu" and tensor.dim() == 0


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in ``value`` and in the containers inside it."""
    return list(_walk(value))


def _walk(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item)
    elif isinstance(value, dict):
        yield from _walk(list(value.values()))


def _written(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Return the tensors that ``func`` writes to."""
    values = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            given = args[position] if position < len(args) else None
            values.append(kwargs.get(argument.name, given))
    return tensors_in(values)
