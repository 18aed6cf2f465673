"""Tensors in tuples, lists, dicts, dataclasses: scattered, and gathered.

What a replica is called with, and what it returns, has the structure that
the caller's has; tensors in it have fewer rows::

    {"x": 5 rows, "options": ("fast", 2)}
        replica 0    {"x": rows 0 1 2, "options": ("fast", 2)}
        replica 1    {"x": rows 3 4,   "options": ("fast", 2)}

``torch.utils._pytree`` takes dataclasses, and subclasses of lists and dicts,
for leaves: their tensors would not be cut.
"""

import copy
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from dpkit.arguments import Devices
from dpkit.placement import gather, scatter


def scatter_nested(nested: Any, devices: Devices) -> list[Any]:
    """Cut all tensors of a structure by rows, each device getting a shard.

    A tensor without dimensions is copied to each; all else is given to each
    as it is. There are at most as many shards as rows, and one or more.
    """
    tensors = list(named_tensors(nested))
    # 7 rows on 3 devices: 3 shards; 2 rows: 2; none, or no tensors: 1.
    devices = devices[: max(_num_rows(tensors), 1)]
    # By their ids: a tensor that is there twice is cut once.
    shards = {id(x): _shards(x, devices) for _, x in tensors}
    return _cut(nested, shards, len(devices))


def gather_nested(
    parts: Sequence[Any], device: torch.device, name: str = "outputs"
) -> Any:
    """Join the outputs of replicas into one structure, with all rows.

    Tensors are joined by rows, in order of the replicas, on ``device``; those
    without dimensions become one with an entry for each. All else has to be
    equal, and is there once. ``name`` is how an error calls the outputs.

    Raises:
        ValueError: the structures differ, or tensors in more than their rows.
    """
    first = parts[0]
    if not all(_are_alike(first, part) for part in parts):
        raise ValueError(
            f"what the replicas return cannot be joined ({name}: "
            f"{', '.join(map(_describe, parts))}); but for the rows of "
            "tensors it has to be the same"
        )
    if isinstance(first, Tensor):
        rows = [part if part.dim() else part.reshape(1) for part in parts]
        return gather(rows, device)
    if not _has_tensors(list(parts)):
        return first
    inside = [_inside(part) for part in parts]
    joined = [
        gather_nested([items[key] for items in inside], device, name + key)
        for key in inside[0]
    ]
    return _rebuild(first, joined)


def named_tensors(nested: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of a structure, each with its name: ``[1]['y'][0]``.

    ``name`` is that of the structure, with which all names begin.
    """
    # In [zeros, {"y": (zeros, "a word")}]: [0] and [1]['y'][0].
    if isinstance(nested, Tensor):
        yield name, nested
    for key, item in _inside(nested).items():
        yield from named_tensors(item, name + key)


def _inside(nested: Any) -> dict[str, Any]:
    """Return the items of a structure by name: "[0]", "['y']", ".field"."""
    if isinstance(nested, dict):
        return {f"[{key!r}]": item for key, item in nested.items()}
    if isinstance(nested, tuple) and hasattr(nested, "_fields"):
        return {f".{name}": x for name, x in zip(nested._fields, nested)}
    if isinstance(nested, tuple | list):
        return {f"[{i}]": item for i, item in enumerate(nested)}
    if is_dataclass(nested) and not isinstance(nested, type):
        return {f".{f.name}": getattr(nested, f.name) for f in fields(nested)}
    return {}


def _has_tensors(nested: Any) -> bool:
    return any(True for _ in named_tensors(nested))


def _num_rows(tensors: Iterable[tuple[str, Tensor]]) -> int:
    """Return the number of rows that all tensors have; 0 if none has any."""
    rows = {name.lstrip("."): len(x) for name, x in tensors if x.dim()}
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in rows.items())
        raise ValueError(
            f"the tensors differ in their number of rows ({found}); what is "
            "not to be split can be a tensor without dimensions, or a buffer"
        )
    return max(rows.values(), default=0)


def _shards(x: Tensor, devices: Devices) -> list[Tensor]:
    if x.dim() == 0:
        return [x.to(device, copy=True) for device in devices]
    return scatter(x, devices)


def _cut(
    nested: Any, shards: Mapping[int, Sequence[Tensor]], count: int
) -> list[Any]:
    """Return ``count`` structures like this one, number r with shards r.

    ``shards`` has the shards of each tensor, by the id of the tensor.
    """
    if isinstance(nested, Tensor):
        return list(shards[id(nested)])
    if not _has_tensors(nested):
        return [nested] * count
    cut = [_cut(x, shards, count) for x in _inside(nested).values()]
    return [_rebuild(nested, items) for items in zip(*cut, strict=True)]


def _rebuild(nested: Any, items: Sequence[Any]) -> Any:
    """Return a structure of the same type with other items."""
    if isinstance(nested, tuple):  # a named tuple has _make
        return getattr(nested, "_make", type(nested))(items)
    new = copy.copy(nested)  # a subclass may need more than its items
    if not isinstance(nested, dict | list):  # a dataclass, frozen or not
        for field, item in zip(fields(nested), items, strict=True):
            object.__setattr__(new, field.name, item)
        return new
    keys = nested if isinstance(nested, dict) else range(len(nested))
    for key, item in zip(keys, items, strict=True):
        new[key] = item
    return new


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether two parts of outputs can be joined, at their top.

    Tensors may differ in their rows alone; structures that hold tensors need
    the same type and keys, and their items are compared when these are
    joined; all else has to be equal.
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (one.dim(), one.shape[1:]) == (other.dim(), other.shape[1:])
    if type(one) is not type(other):
        return False
    if _has_tensors([one, other]):
        return _inside(one).keys() == _inside(other).keys()
    try:
        return one is other or bool(one == other)
    except (ValueError, RuntimeError):  # arrays compare item by item
        return False


def _describe(part: Any) -> str:
    if isinstance(part, Tensor):
        return f"tensor of shape {tuple(part.shape)}"
    return reprlib.repr(part)
