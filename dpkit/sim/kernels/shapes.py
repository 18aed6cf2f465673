"""Shapes of results where there are no values.

PyTorch works them out in Python, slowly, and the next step of training asks
for the same. So they are remembered.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dpkit.sim.containers import tensors_in
from dpkit.sim.operators.operations import OpCall

MOST = 10_000  # shapes that are remembered

# From an operator and the shapes that it is given: what makes its result.
_known: dict[Hashable, Callable[[], Any]] = {}
# The kinds of arguments that no value of another kind is equal to.
_KNOWN_BY_VALUE = {int, str, type(None), torch.dtype, torch.device}
_META = torch.device("meta")
_empty_strided = torch.empty_strided  # PyTorch's own; patches.py changes it


class _NoKeyError(Exception):
    """Raised for an argument that a key would not tell from others."""


def run_for_shapes(call: OpCall) -> Any:
    """Run an operation on tensors of torch's device ``meta``.

    Nothing runs that is known to write alone, in the shapes that there are;
    then nothing is returned.
    """
    operator, args, kwargs = call
    if operator.kind == "written" and not operator.launches:
        return operator.func(*args, **kwargs)  # such as squeeze_, resize_
    try:
        key = _key_of(call)
    except _NoKeyError:
        return operator.func(*args, **kwargs)
    make = _known.get(key)  # at once: another thread may clear it
    if make is not None:
        return make()
    out = operator.func(*args, **kwargs)
    make = _maker(None if operator.kind == "written" else out)
    # An argument "out" may have another shape now; a result share memory.
    if _key_of(call) == key and (
        out is None or _sizes((args, make())) == _sizes((args, out))
    ):
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = make
    return out


def _key_of(call: OpCall) -> Hashable:
    """Return a key of a call: all that the shapes of its result depend on."""
    operator, args, kwargs = call
    named = [(name, _key(value)) for name, value in kwargs.items()]
    return operator, torch.get_default_dtype(), *map(_key, args), *named


def _key(value: Any) -> Hashable:
    """Return the part of that key for one argument."""
    kind = type(value)
    if kind in _KNOWN_BY_VALUE:
        return value  # type: ignore[no-any-return]
    if kind is Tensor:
        if not value.is_meta or value.is_conj() or value.is_neg():
            raise _NoKeyError
        return value.shape, value.stride(), value.dtype
    if kind is list or kind is tuple:
        return kind, *map(_key, value)
    if isinstance(value, (Tensor, torch.Generator)):
        raise _NoKeyError
    return kind, value  # True, 1 and 1.0 are equal


def _maker(out: Any) -> Callable[[], Any]:
    """Return what makes new tensors of the shapes and types in ``out``."""
    if isinstance(out, Tensor):
        form = out.shape, out.stride()
        return partial(_empty_strided, *form, dtype=out.dtype, device=_META)
    if isinstance(out, (list, tuple)):
        kind = type(out)
        makers = [_maker(item) for item in out]
        return lambda: kind([make() for make in makers])
    return lambda: out


def made_like(out: Any) -> Any:
    """Return new tensors of the shapes and types of those in ``out``."""
    return _maker(out)()


def _sizes(out: Any) -> list[int]:
    """Return the bytes of each storage under the tensors in ``out``."""
    storages = [tensor.untyped_storage() for tensor in tensors_in(out)]
    return [s.nbytes() for s in {s._cdata: s for s in storages}.values()]
