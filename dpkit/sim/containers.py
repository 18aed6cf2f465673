"""The tensors of a call: in lists, tuples and dictionaries."""

from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in ``value`` and in the containers inside it."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    found = []
    for item in value:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple, dict)):
            found += tensors_in(item)
    return found
