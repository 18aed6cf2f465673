"""What comes out where there are no numbers, remembered by what goes in.

PyTorch works out the shape of a sum in Python, which takes longer than all
that a simulated device does for it. A step of training asks for the same
shapes as the step before.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.placement_rules import tensors_in
from dpkit.sim.schemas import alias_kind

MOST = 10_000  # results that are remembered

_known: dict[Hashable, tuple[Any]] = {}


class _NoKeyError(Exception):
    """An argument on which the result may depend in ways not told here."""


def run_without_numbers(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an operation on tensors of torch's device ``meta``.

    Args:
        func: The operation.
        args: What it is given.
        kwargs: The same, by name.

    Returns:
        What ``func`` returns; the tensors in it are new, if it makes any.
    """
    if alias_kind(func)[0] != "new":
        return func(*args, **kwargs)
    try:
        key = func, torch.get_default_dtype(), _key(args), _key(kwargs)
    except _NoKeyError:
        return func(*args, **kwargs)
    known = _known.get(key)  # at once: another thread may clear it
    if known is not None:
        return _made_like(known[0])
    out = func(*args, **kwargs)
    pattern = _made_like(out)
    if _sizes((args, pattern)) == _sizes((args, out)):  # shares no memory
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = (pattern,)
    return out


def _key(value: Any) -> Any:
    """Return what of an argument a shape may depend on."""
    kind = type(value)
    if kind is Tensor and value.is_meta and not _turned(value):
        return value.shape, value.stride(), value.dtype
    if kind is list or kind is tuple:
        return kind, *[_key(item) for item in value]
    if kind is dict:
        return tuple((name, _key(item)) for name, item in value.items())
    if kind in (bool, int, float, complex):
        return kind, repr(value)  # True, 1 and 1.0 are equal
    if isinstance(value, (Tensor, torch.Generator)):
        raise _NoKeyError
    return value


def _turned(tensor: Tensor) -> bool:
    """Tell whether values are still to be conjugated or negated."""
    return tensor.is_conj() or tensor.is_neg()


def _made_like(out: Any) -> Any:
    """Return new tensors of the shapes and types of those in ``out``."""
    if isinstance(out, Tensor):
        return torch.empty_strided(
            out.shape, out.stride(), dtype=out.dtype, device="meta"
        )
    if isinstance(out, (list, tuple)):
        return type(out)([_made_like(item) for item in out])
    return out


def _sizes(out: Any) -> list[int]:
    """Return the bytes of each storage under the tensors in ``out``."""
    storages = [tensor.untyped_storage() for tensor in tensors_in(out)]
    return [s.nbytes() for s in {s._cdata: s for s in storages}.values()]
