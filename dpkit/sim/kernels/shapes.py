"""Shapes of results where there are no numbers.

PyTorch works them out in Python, slowly, and the next step of training asks
for the same. So they are remembered.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.memory import tensors_in
from dpkit.sim.operations import OpCall, alias_kind

MOST = 10_000  # shapes that are remembered

_known: dict[Hashable, tuple[Any]] = {}


class _NoKeyError(Exception):
    """Raised for an argument that a key would not tell from others."""


def run_for_shapes(call: OpCall) -> Any:
    """Run an operation on tensors of torch's device ``meta``."""
    func, args, kwargs = call
    if alias_kind(func)[0] != "new":
        return func(*args, **kwargs)
    try:
        key = func, torch.get_default_dtype(), _key(args), _key(kwargs)
    except _NoKeyError:
        return func(*args, **kwargs)
    known = _known.get(key)  # at once: another thread may clear it
    if known is not None:
        return made_like(known[0])
    out = func(*args, **kwargs)
    pattern = made_like(out)
    if _sizes((args, pattern)) == _sizes((args, out)):  # shares no memory
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = (pattern,)
    return out


def _key(value: Any) -> Any:
    """Return what of an argument a shape may depend on."""
    kind = type(value)
    marked = kind is Tensor and (value.is_conj() or value.is_neg())
    if kind is Tensor and value.is_meta and not marked:
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


def made_like(out: Any) -> Any:
    """Return new tensors of the shapes and types of those in ``out``."""
    if isinstance(out, Tensor):
        return torch.empty_strided(
            out.shape, out.stride(), dtype=out.dtype, device="meta"
        )
    if isinstance(out, (list, tuple)):
        return type(out)([made_like(item) for item in out])
    return out


def _sizes(out: Any) -> list[int]:
    """Return the bytes of each storage under the tensors in ``out``."""
    storages = [tensor.untyped_storage() for tensor in tensors_in(out)]
    return [s.nbytes() for s in {s._cdata: s for s in storages}.values()]
