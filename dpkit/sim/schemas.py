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
def is_composite(func: OpOverload) -> bool:
    """Tell whether torch composes ``func`` of others, on the CPU too.

    Autograd takes it apart before it comes to a device. Where autograd has no
    say, inside another dispatch or below autograd, it arrives whole.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()
    return has(name, "CompositeImplicitAutograd") and not has(name, "CPU")


def arguments(
    func: OpOverload,
    positions: tuple[int, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[Any]:
    """Return the arguments in these positions of the schema."""
    names = [a.name for a in func._schema.arguments]
    return [args[i] if i < len(args) else kwargs[names[i]] for i in positions]
