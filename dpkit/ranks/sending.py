"""What a process group sends, by dpkit's own functions.

Each operation takes what all ranks brought, in order of rank: ``xs[r]`` is
what rank r gave. Collectives go by one of two ways:

    "ring", "star", …    message by message, as by hand; what is no allreduce
                         takes the tree or the ring
    "library"            in one launch, by a closed form, as NCCL's
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpkit import collectives
from dpkit.library import LIBRARY
from dpkit.ranks.reductions import after_adding, before_adding, to_add_by
from dpkit.sim.kernels.unpaid import put, scratch, to_overwrite
from dpkit.sim.tracing import meet
from dpkit.streams import send


def _or(name: str, algorithm: str) -> str:
    return LIBRARY if algorithm == LIBRARY else name


def send_allreduce(
    xs: list[Any], algorithm: str, op: str, factor: float = 1.0
) -> None:
    """Reduce the first tensors of all, then the second ones, …."""
    for tensors in zip(*xs):
        before_adding(tensors, factor)
        how = to_add_by(op, tensors[0].dtype)
        collectives.allreduce(tensors, how, algorithm)
        after_adding(op, tensors, len(tensors))


def send_broadcast(xs: list[Any], algorithm: str, root: int) -> None:
    """Give all the tensors of the root."""
    for tensors in zip(*xs):
        collectives.broadcast(tensors, root, _or("tree", algorithm))


def send_reduce(
    xs: list[Any], algorithm: str, op: str, root: int, factor: float = 1.0
) -> None:
    """Reduce the tensors of all to those of the root; the others stay."""
    for tensors in zip(*xs):
        given = list(tensors)
        if factor != 1:
            given = [_flat_copy([x]) for x in tensors]
            before_adding(given, factor)
        how = to_add_by(op, given[0].dtype)
        collectives.reduce(given, how, root, _or("tree", algorithm))
        after_adding(op, [given[root]], len(given))
        if factor != 1:
            put(given[root], tensors[root])


# Three ranks gather 2 numbers of each. Rank 1 gives c and d:
#
#     its flat tensor, before     · · c d · ·
#     after                       a b c d e f


def send_allgather(xs: list[Any], algorithm: str) -> None:
    """Put what each gives, one behind another, into what each takes.

    A rank takes a list, of one tensor or of a tensor for each rank.
    """
    most = max(given.numel() for _, given in xs)
    _ = [_for_all(outs, xs) for outs, _ in xs if len(outs) > 1]
    flats = []
    for rank, (outs, given) in enumerate(xs):
        for source, out in enumerate(outs):
            _check_sizes(xs[source][1], out, len(xs) // len(outs))
        one = to_overwrite(outs[0], given) if len(outs) == 1 else None
        flats.append(scratch(given, most * len(xs)) if one is None else one)
        put(given, flats[rank], to=rank * most)
    collectives.allgather(flats, _or("ring", algorithm))
    for (outs, _), flat in zip(xs, flats):
        for rank, out in enumerate(outs):
            put(flat, out, first=rank * most)


def send_reduce_scatter(
    xs: list[Any], algorithm: str, op: str, factor: float = 1.0
) -> None:
    """Put part r of the sum of what all give into what rank r takes.

    A rank gives a list, of one tensor or of a tensor for each rank.
    """
    most = max(part.numel() for _, parts in xs for part in parts)
    _ = [_for_all(parts, xs) for _, parts in xs if len(parts) > 1]
    flats = [_flat_copy(parts, most) for _, parts in xs]
    before_adding(flats, factor)
    how = to_add_by(op, flats[0].dtype)
    sums = collectives.reduce_scatter(flats, how, _or("ring", algorithm))
    after_adding(op, sums, len(sums))
    for rank, ((out, parts), part) in enumerate(zip(xs, sums)):
        _check_sizes(out, parts[rank % len(parts)], len(xs) // len(parts))
        put(part, out)


def send_all_to_all(xs: list[Any], algorithm: str) -> None:
    """Put what rank r gives for rank s into what s takes from r.

    ``xs[r]`` has what r takes from each, and what it gives to each.
    """
    # In each round a rank sends to the one that is so many places on.
    for distance in range(len(xs)):
        pairs = []
        for rank, (_, given) in enumerate(xs):
            target = (rank + distance) % len(xs)
            outs = _for_all(xs[target][0], xs)
            pairs.append((_for_all(given, xs)[target], outs[rank]))
        _send_all(pairs)


def send_scatter(xs: list[Any], algorithm: str, root: int) -> None:
    """Put the tensors that the root gives into what each takes."""
    given = _for_all(xs[root][1], xs)
    _send_all(list(zip(given, [out for out, _ in xs])))


def send_gather(xs: list[Any], algorithm: str, root: int) -> None:
    """Put what each gives into the tensors that the root takes."""
    outs = _for_all(xs[root][0], xs)
    _send_all(list(zip([given for _, given in xs], outs)))


def send_message(xs: list[Tensor], algorithm: str) -> None:
    """Copy the first tensor to the second."""
    given, out = xs
    _shaped(out, given).copy_(given)


def send_barrier(xs: list[int], algorithm: str) -> None:
    """Hold the hosts of these ranks until all have come."""
    meet([torch.device("sim", rank) for rank in xs])


def _flat_copy(parts: Sequence[Tensor], most: int | None = None) -> Tensor:
    """Return parts in one flat tensor, ``most`` elements apart."""
    most = parts[0].numel() if most is None else most
    flat = scratch(parts[0], most * len(parts))
    for rank, part in enumerate(parts):
        put(part, flat, to=rank * most)
    return flat


def _send_all(pairs: list[tuple[Tensor, Tensor]]) -> None:
    shaped = [(given, _shaped(out, given)) for given, out in pairs]
    full = [(given, out) for given, out in shaped if given.numel()]
    for parcel in [send(given, out.device, out) for given, out in full]:
        parcel.open()


def _shaped(out: Tensor, given: Tensor) -> Tensor:
    _check_sizes(given, out)
    return out if out.shape == given.shape else out.view(given.shape)


def _check_sizes(given: Tensor, out: Tensor, times: int = 1) -> None:
    if (given.numel() * times, given.dtype) != (out.numel(), out.dtype):
        raise RuntimeError(
            "what is given and what is taken differ in size or dtype (given: "
            f"{tuple(given.shape)} {given.dtype}, taken: {tuple(out.shape)} "
            f"{out.dtype}, times: {times})"
        )


def _for_all(tensors: list[Tensor], xs: list[Any]) -> list[Tensor]:
    if len(tensors) != len(xs):
        found = f"tensors: {len(tensors)}, ranks: {len(xs)}"
        raise RuntimeError(f"a list needs a tensor for each rank ({found})")
    return tensors
