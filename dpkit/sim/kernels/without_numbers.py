"""Operations on a machine where small integers alone have numbers.

An operation runs on torch's device "meta", for the shape of what comes out. It
runs on numbers as well if small integers come out and all that it reads has
numbers::

    operation                    on "meta"   on numbers
    scores + 1                   yes         no
    counts + 1                   yes         yes: the sum is known
    counts + scores.argmax()     yes         no: the sum is not known
    counts += scores.argmax()    yes         no: counts lose their numbers
    counts.fill_(3)              yes         yes, whatever counts had before
    counts.nonzero()             no          yes: they decide the shape
    counts.cpu()                 no          yes: a tensor on the CPU
    scores[counts > 2]           yes         no; the mask decides the shape

What is drawn at random has no numbers: nothing is drawn here.
"""

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from dpkit.sim.kernels.shapes import made_like, run_for_shapes
from dpkit.sim.memory import tensors_in
from dpkit.sim.operations import (
    INDEXING,
    MASKS,
    OpCall,
    alias_kind,
    aten,
    base_name,
    by_position,
    host_waits,
    launches_kernel,
    read_by,
    written,
    written_places,
)
from dpkit.sim.small_integers import (
    has_numbers,
    is_small_integer,
    keep_numbers,
    lose_numbers,
    may_keep,
    numbers_of,
)

_CPU = torch.device("cpu")


def run_without_numbers(call: OpCall) -> Any:
    """Run an operation on tensors of torch's device "meta", or the CPU."""
    func = call.func
    if alias_kind(func)[0] == "view":
        return func(*call.args, **call.kwargs)
    if host_waits(call):
        if base_name(func) not in INDEXING:
            return _run_by_numbers(call)
        call = _with_known_masks(call)
    if base_name(func).startswith("_foreach"):
        on_meta = [x for x in tensors_in(call.args) if x.is_meta]
        columns = (
            by_position(call) if any(map(_may_have_numbers, on_meta)) else []
        )
        if len(columns) > 1:
            return _run_each(columns)
    if written_places(func) and launches_kernel(func):
        targets = written(call)
        if any(map(_may_have_numbers, targets)):
            return _write(call, targets)
    return _make(call)


def make_without_numbers(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run what makes a tensor from no other."""
    return run_without_numbers(OpCall(func, args, kwargs))


def copy_without_numbers(source: Tensor, target: Tensor) -> None:
    """Copy the numbers that ``source`` has; else those of ``target`` go."""
    run_without_numbers(OpCall(aten.copy_.default, (target, source), {}))


def _may_have_numbers(x: Tensor) -> bool:
    """Return whether a tensor has numbers, or may get some."""
    return is_small_integer(x) or has_numbers(x)


def _make(call: OpCall) -> Any:
    """Run what makes tensors; keep the numbers of those that are small."""
    to_cpu = call.kwargs.get("device") == _CPU
    on_meta = call
    if to_cpu:
        on_meta = call._replace(kwargs=call.kwargs | {"device": "meta"})
    out = run_for_shapes(on_meta)
    made = [x for x in tensors_in(out) if may_keep(x) and not has_numbers(x)]
    copies_to_cpu = to_cpu and call.func is aten._to_copy.default
    on_numbers = _on_numbers(call) if made or copies_to_cpu else None
    if on_numbers is None:
        return out
    values = _run(on_numbers)
    if to_cpu:
        return values
    _keep_all(tensors_in(out), tensors_in(values))
    return out


def _write(call: OpCall, targets: list[Tensor]) -> Any:
    """Run what writes to small integers, or to memory that is on the CPU."""
    on_numbers = _on_numbers(call)  # before the shapes of targets change
    if not all(x.is_meta for x in targets):
        return _run(on_numbers or call)
    out = run_for_shapes(call)
    if on_numbers is None:
        for x in targets:
            lose_numbers(x)
        return out
    _run(on_numbers)
    values = written(on_numbers)
    for x, value in zip(targets, values):
        # An argument "out" that was resized: the CPU orders the dimensions.
        if x.stride() != value.stride():
            x.as_strided_(value.shape, value.stride())
    _keep_all(targets, values)
    return out


def _run_by_numbers(call: OpCall) -> Any:
    """Run an operation whose numbers decide the shape of what comes out."""
    on_numbers = _on_numbers(call)
    assert on_numbers is not None  # check_readable has seen to it
    values = _run(on_numbers)
    outs = written(call)
    for x, value in zip(outs, written(on_numbers)):
        x.resize_(value.shape).as_strided_(value.shape, value.stride())
    made = made_like(values)
    _keep_all(outs or tensors_in(made), tensors_in(values))
    return made


def _run_each(columns: list[OpCall]) -> Any:
    """Run a list operation position by position: some may have numbers."""
    results = [run_without_numbers(column) for column in columns]
    return None if results[0] is None else [r[0] for r in results]


def _with_known_masks(call: OpCall) -> OpCall:
    """Return ``x[mask]`` with the mask's numbers; the mask has some."""
    x, indices, *rest = call.args
    known = [
        _numbers_or_blank(i).bool()
        if i is not None and i.dtype in MASKS
        else i
        for i in indices
    ]
    return call._replace(args=(x, known, *rest))


def _on_numbers(call: OpCall) -> OpCall | None:
    """Return a call on numbers; None if they are not known, or drawn."""
    drawn = torch.Tag.nondeterministic_seeded in call.func.tags
    if drawn or not all(map(has_numbers, read_by(call))):
        return None
    args, kwargs = _with_numbers(call.args), _with_numbers(call.kwargs)
    if kwargs.get("device") is not None:
        kwargs = kwargs | {"device": "cpu"}
    return OpCall(call.func, args, kwargs)


def _with_numbers(value: Any) -> Any:
    """Return ``value`` with numbers in place of the tensors in it."""
    kind = type(value)
    if isinstance(value, Tensor):
        return _numbers_or_blank(value)
    if kind is list or kind is tuple:
        return kind([_with_numbers(item) for item in value])
    if kind is dict:
        return {key: _with_numbers(item) for key, item in value.items()}
    return value


def _numbers_or_blank(x: Tensor) -> Tensor:
    """Return the numbers of a tensor, or where it is not read any others."""
    known = numbers_of(x)
    if known is not None:
        return known
    if is_small_integer(x):
        return torch.empty_strided(
            x.shape, x.stride(), dtype=x.dtype, device="cpu"
        )
    return torch.empty((), dtype=x.dtype, device="cpu").expand(x.shape)


def _run(call: OpCall) -> Any:
    return call.func(*call.args, **call.kwargs)


def _keep_all(tensors: list[Tensor], values: list[Tensor]) -> None:
    for x, value in zip(tensors, values):
        if may_keep(x) and not has_numbers(x):
            keep_numbers(x, value)
