"""Operations on a machine where small integers alone have values.

An operation runs on torch's device "meta", for the shape of what comes out. It
runs on values as well if small integers come out and all that it reads has
values::

    operation                    on "meta"   on values
    scores + 1                   yes         no
    counts + 1                   yes         yes: the sum is known
    counts + scores.argmax()     yes         no: the sum is not known
    counts += scores.argmax()    yes         no: counts lose their values
    counts.fill_(3)              yes         yes, whatever counts had before
    counts.nonzero()             no          yes: they decide the shape
    counts.cpu()                 no          yes: a tensor on the CPU
    scores[counts > 2]           yes         no; the mask decides the shape

What is drawn at random has no values: nothing is drawn here. An operation on
a list has values for all of it or for none.
"""

from typing import Any

import torch
from torch import Tensor

from dpkit.sim.containers import tensors_in
from dpkit.sim.kernels.shapes import made_like, run_for_shapes
from dpkit.sim.memory.small_integers import (
    has_values,
    is_small_integer,
    keep_values,
    lose_values,
    may_keep,
    values_of,
)
from dpkit.sim.operators.operations import (
    MASKS,
    OpCall,
    aten,
    host_waits,
    read_by,
    written,
)
from dpkit.sim.operators.record import operator_of

_CPU = torch.device("cpu")


def run_without_values(call: OpCall) -> Any:
    """Run an operation on tensors of torch's device "meta", or the CPU."""
    operator = call.operator
    if operator.kind == "view":
        return _run(call)
    if operator.may_wait and host_waits(call):
        if not operator.is_indexing:
            return _run_by_values(call)
        call = _with_known_masks(call)
    if operator.is_list and not any(
        map(_may_have_values, tensors_in(call.args))
    ):
        return run_for_shapes(call)
    if operator.writes and operator.launches:
        targets = written(call)
        if any(map(_may_have_values, targets)):
            return _write(call, targets)
    return _make(call)


def copy_without_values(source: Tensor, target: Tensor) -> None:
    """Copy the values that ``source`` has; else those of ``target`` go."""
    copy = operator_of(aten.copy_.default)
    run_without_values(OpCall(copy, (target, source), {}))


def _may_have_values(x: Tensor) -> bool:
    """Return whether a tensor has values, or may get some."""
    return is_small_integer(x) or has_values(x)


def _make(call: OpCall) -> Any:
    """Run what makes tensors; keep the values of those that are small."""
    to_cpu = bool(call.kwargs) and call.kwargs.get("device") == _CPU
    on_meta = call
    if to_cpu:
        on_meta = call._replace(kwargs=call.kwargs | {"device": "meta"})
    out = run_for_shapes(on_meta)
    made = [x for x in tensors_in(out) if may_keep(x) and not has_values(x)]
    copies_to_cpu = to_cpu and call.operator.is_copy
    on_values = _on_values(call) if made or copies_to_cpu else None
    if on_values is None:
        return out
    values = _run(on_values)
    if to_cpu:
        return values
    _keep_all(tensors_in(out), tensors_in(values))
    return out


def _write(call: OpCall, targets: list[Tensor]) -> Any:
    """Run what writes to small integers, or to memory that is on the CPU."""
    on_values = _on_values(call)  # before the shapes of targets change
    if not all(x.is_meta for x in targets):
        return _run(on_values or call)
    if on_values is None:
        for x in targets:
            lose_values(x)
        return run_for_shapes(call)
    out = None if call.operator.kind == "written" else run_for_shapes(call)
    _run(on_values)
    values = written(on_values)
    for x, value in zip(targets, values):
        _take_form(x, value)
    _keep_all(targets, values)
    return out


def _run_by_values(call: OpCall) -> Any:
    """Run an operation whose values decide the shape of what comes out."""
    on_values = _on_values(call)
    assert on_values is not None  # check_readable has seen to it
    values = _run(on_values)
    outs = written(call)
    for x, value in zip(outs, written(on_values)):
        _take_form(x, value)
    made = made_like(values)
    _keep_all(outs or tensors_in(made), tensors_in(values))
    return made


def _take_form(x: Tensor, value: Tensor) -> None:
    """Give an argument "out" the shape that it has on the CPU."""
    if x.shape != value.shape:
        x.resize_(value.shape)
    if x.stride() != value.stride():
        x.as_strided_(value.shape, value.stride())


def _with_known_masks(call: OpCall) -> OpCall:
    """Return ``x[mask]`` with the mask's values; the mask has some."""
    x, indices, *rest = call.args
    known = [
        _values_or_blank(i).bool() if i is not None and i.dtype in MASKS else i
        for i in indices
    ]
    return call._replace(args=(x, known, *rest))


def _on_values(call: OpCall) -> OpCall | None:
    """Return a call on values; None if they are not known, or drawn."""
    operator = call.operator
    if operator.is_random or not all(map(has_values, read_by(call))):
        return None
    args = _with_values(call.args)
    kwargs = _with_values(call.kwargs)
    if kwargs.get("device") is not None:
        kwargs = kwargs | {"device": "cpu"}
    return OpCall(operator, args, kwargs)


def _with_values(value: Any) -> Any:
    """Return ``value`` with values in place of the tensors in it."""
    kind = type(value)
    if isinstance(value, Tensor):
        return _values_or_blank(value)
    if kind is list or kind is tuple:
        return kind([_with_values(item) for item in value])
    if kind is dict:
        return {key: _with_values(item) for key, item in value.items()}
    return value


def _values_or_blank(x: Tensor) -> Tensor:
    """Return the values of a tensor, or where it is not read any others."""
    known = values_of(x)
    if known is not None:
        return known
    if is_small_integer(x):
        return torch.empty_strided(
            x.shape, x.stride(), dtype=x.dtype, device="cpu"
        )
    return torch.empty((), dtype=x.dtype, device="cpu").expand(x.shape)


def _run(call: OpCall) -> Any:
    return call.operator.func(*call.args, **call.kwargs)


def _keep_all(tensors: list[Tensor], values: list[Tensor]) -> None:
    for x, value in zip(tensors, values):
        if may_keep(x) and not has_values(x):
            keep_values(x, value)
