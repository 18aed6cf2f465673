"""What the schema of an operation tells: what it writes to and returns."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload


@cache
def alias_kind(func: OpOverload) -> tuple[str, tuple[int, ...]]:
    """Return what ``func`` returns: something "new", a "view", or "written".

    With the last come the positions of the arguments that it wrote to.
    """
    schema = func._schema
    infos = [r.alias_info for r in schema.returns]
    if func._overloadname.endswith("out") and not infos:
        outs = [i for i, a in enumerate(schema.arguments) if a.is_out]
        return "written", tuple(outs)
    if not any(infos):
        return "new", ()
    if not all(info and info.is_write for info in infos):
        return "view", ()
    places = {
        frozenset(a.alias_info.before_set): i
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None
    }
    return "written", tuple(
        places[frozenset(info.before_set)] for info in infos if info
    )


@cache
def comes_whole(func: OpOverload) -> bool:
    """Tell whether ``func`` is one that autograd takes apart.

    It does so before an operation comes to a device, with what PyTorch
    composes of others, if the CPU has no kernel for it, and with what a
    function of ours stands in for. Such an operation comes whole where
    autograd has no say: inside another dispatch, and in inference mode.
    """
    composed = _has_kernel(func, "CompositeImplicitAutograd")
    return has_stand_in(func) or (composed and not _has_kernel(func, "CPU"))


@cache
def has_stand_in(func: OpOverload) -> bool:
    """Tell whether a function stands in for ``func`` where autograd is."""
    return _has_kernel(func, "AutogradPrivateUse1")


def _has_kernel(func: OpOverload, key: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(func.name(), key))


def arguments(
    func: OpOverload,
    positions: tuple[int, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[Any]:
    """Return the arguments in these positions of the schema."""
    names = [a.name for a in func._schema.arguments]
    return [args[i] if i < len(args) else kwargs[names[i]] for i in positions]
