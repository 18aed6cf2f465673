"""What a library's collective leaves on one rank, if all contribute the same.

The functions take what this rank contributes, in a list of one, and ``ranks``,
those of the group. They do on its device what ``sending`` does on all::

    all give 3       allreduce, sum    3 · ranks
                     allgather         3 3 3 …

Where there are no values that is the time alone. An operation that is sent in
messages, such as an all-to-all, has those of this rank alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from dpkit.collectives import flattened
from dpkit.library import perform_alike
from dpkit.runs.ranks.alike_checks import check_sent
from dpkit.runs.ranks.reductions import before_adding
from dpkit.runs.ranks.sending import check_sizes, flat_copy, for_all, send_all
from dpkit.runs.ranks.stand_ins import copy_for
from dpkit.sim.kernels.uncharged import (
    put,
    reduce_equal,
    scratch,
    to_overwrite,
)
from dpkit.sim.memory import has_values
from dpkit.sim.tensors import plain


def leave_allreduce(
    xs: list[Any], ranks: Sequence[int], op: str, factor: float = 1.0
) -> None:
    """Reduce each tensor as if all ranks had the same.

    Args:
        xs: A list of one: the tensors of this rank, each overwritten.
        ranks: The ranks of the group.
        op: What they are reduced by, such as "sum".
        factor: What they are multiplied by before.
    """
    for x in xs[0]:
        _reduce("allreduce", x, ranks=ranks, op=op, factor=factor)


def leave_reduce(
    xs: list[Any],
    ranks: Sequence[int],
    op: str,
    root: int,
    factor: float = 1.0,
) -> None:
    """Reduce each tensor as if all ranks had the same, to this rank.

    Args:
        xs: A list of one: the tensors of this rank, each overwritten.
        ranks: The ranks of the group.
        op: What they are reduced by, such as "sum".
        root: The place of this rank, which ``check_contribution`` has checked.
        factor: What they are multiplied by before.
    """
    for x in xs[0]:
        _reduce("reduce", x, ranks=ranks, op=op, factor=factor)


def _reduce(
    operation: str, x: Tensor, *, ranks: Sequence[int], op: str, factor: float
) -> None:
    before_adding([x], factor)
    with flattened([x]) as (flat,):
        if operation == "reduce":
            x.detach().reshape(-1)  # which takes the host a moment
        perform_alike(operation, flat, ranks)
        reduce_equal(flat, len(ranks), op)
        _divide(flat, op, len(ranks))


def _divide(x: Tensor, op: str, count: int) -> None:
    if op == "mean":
        x /= count


def leave_broadcast(xs: list[Any], ranks: Sequence[int], root: int) -> None:
    """Give the tensors of this rank to all."""
    for x in xs[0]:
        with flattened([x]) as (flat,):
            perform_alike("broadcast", flat, ranks)


def leave_allgather(xs: list[Any], ranks: Sequence[int]) -> None:
    """Put what this rank gives into what it takes, for each rank."""
    ((outs, given),) = xs
    for out in for_all(outs, ranks) if len(outs) > 1 else outs:
        check_sizes(given, out, len(ranks) // len(outs))
    if len(outs) == 1:
        flat = to_overwrite(outs[0], given)
    else:
        flat = scratch(given, given.numel() * len(ranks))
    with flattened([flat]) as (flat,):
        perform_alike("allgather", flat, ranks)
    each = given.numel()
    for out in outs:
        known = has_values(plain(given)) and each
        for first in range(0, out.numel(), each) if known else [0]:
            put(given, out, to=first)


def leave_reduce_scatter(
    xs: list[Any], ranks: Sequence[int], op: str, factor: float = 1.0
) -> None:
    """Put this rank's part of the sum of all into what it takes.

    Args:
        xs: A list of one: the tensor that this rank takes, and the list of
            those that it gives.
        ranks: The ranks of the group.
        op: What they are reduced by, such as "sum".
        factor: What they are multiplied by before.
    """
    ((out, parts),) = xs
    count = len(ranks)
    check_sizes(out, parts[0], count // len(parts))
    if len(parts) > 1:
        for_all(parts, ranks)
    flat = flat_copy(parts)
    before_adding([flat], factor)
    with flattened([flat]) as (flat,):
        perform_alike("reduce_scatter", flat, ranks)
        part = flat.tensor_split(count)[0]
        reduce_equal(part, count, op)
        _divide(part, op, count)
    put(part, out)


def leave_all_to_all(xs: list[Any], ranks: Sequence[int]) -> None:
    """Put what each would give this rank into what it takes.

    The rank that is so many places on takes from this one, and this one from
    the rank that is as many places back.
    """
    outs, given = (for_all(tensors, ranks) for tensors in xs[0])
    check_sent(ranks, "all_to_all")
    for distance, rank in enumerate(ranks):
        back = -distance % len(ranks)
        pairs = [(given[0], outs[0])]  # to itself
        if distance:
            to = given[distance], copy_for(rank, outs[0])
            pairs = [to, (copy_for(ranks[back], given[0]), outs[back])]
        send_all(pairs)


def leave_scatter(xs: list[Any], ranks: Sequence[int], root: int) -> None:
    """Send to each what this rank gives."""
    ((out, given),) = xs
    check_sent(ranks, "scatter")
    outs = [out, *(copy_for(rank, out) for rank in ranks[1:])]
    send_all(list(zip(for_all(given, ranks), outs)))


def leave_gather(xs: list[Any], ranks: Sequence[int], root: int) -> None:
    """Put what each would give into what this rank takes."""
    ((outs, x),) = xs
    check_sent(ranks, "gather")
    given = [x, *(copy_for(rank, x) for rank in ranks[1:])]
    send_all(list(zip(given, for_all(outs, ranks))))


def leave_barrier(xs: list[int], ranks: Sequence[int]) -> None:
    """Wait for nobody: all arrive at the same moment."""


#: Each kind of collective -> the function that leaves its result.
LEAVERS: dict[str, Callable[..., None]] = {
    "allreduce": leave_allreduce,
    "broadcast": leave_broadcast,
    "reduce": leave_reduce,
    "allgather": leave_allgather,
    "reduce_scatter": leave_reduce_scatter,
    "all_to_all": leave_all_to_all,
    "scatter": leave_scatter,
    "gather": leave_gather,
    "barrier": leave_barrier,
}
