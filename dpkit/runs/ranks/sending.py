"""What a process group sends, by dpkit's own functions.

Each operation takes what all ranks contribute, in order of rank: ``xs[r]`` is
what rank r gave. Collectives are sent in one of two ways:

    "ring", "star", …    message by message, as by hand; what is no allreduce
                         takes the tree or the ring
    "library"            in one launch, by a closed form, as NCCL's
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dpkit import collectives
from dpkit.library import LIBRARY
from dpkit.runs.ranks.reductions import before_adding
from dpkit.sim.kernels.uncharged import put, scratch, to_overwrite
from dpkit.sim.tracing import meet
from dpkit.streams import send


def _or(name: str, algorithm: str) -> str:
    return LIBRARY if algorithm == LIBRARY else name


def send_allreduce(
    xs: list[Any], algorithm: str, op: str, factor: float = 1.0
) -> None:
    """Reduce the first tensors of all, then the second ones, ….

    Args:
        xs: ``xs[r]`` is the list of tensors of rank r, each overwritten.
        algorithm: How it is sent, such as "ring" or "library".
        op: What they are reduced by, such as "sum".
        factor: What they are multiplied by before.
    """
    for tensors in zip(*xs):
        before_adding(tensors, factor)
        collectives.allreduce(tensors, op, algorithm)


def send_broadcast(xs: list[Any], algorithm: str, root: int) -> None:
    """Give all the tensors of the root."""
    for tensors in zip(*xs):
        collectives.broadcast(tensors, root, _or("tree", algorithm))


def send_reduce(
    xs: list[Any], algorithm: str, op: str, root: int, factor: float = 1.0
) -> None:
    """Reduce the tensors of all to those of the root; the others stay.

    Args:
        xs: ``xs[r]`` is the list of tensors of rank r.
        algorithm: As for :func:`send_allreduce`, with ``op`` and ``factor``.
        op: What they are reduced by.
        root: The rank in the group whose tensors are overwritten.
        factor: What they are multiplied by before.
    """
    for tensors in zip(*xs):
        given = list(tensors)
        if factor != 1:
            given = [flat_copy([x]) for x in tensors]
            before_adding(given, factor)
        collectives.reduce(given, op, root, _or("tree", algorithm))
        if factor != 1:
            put(given[root], tensors[root])


# Three ranks gather 2 values of each. Rank 1 gives c and d:
#
#     its flat tensor, before     · · c d · ·
#     after                       a b c d e f


def send_allgather(xs: list[Any], algorithm: str) -> None:
    """Put what each gives, one behind another, into what each takes.

    Args:
        xs: ``xs[r]`` is a pair for rank r: the list that it takes, of one
            tensor or of a tensor for each rank, and the tensor that it gives.
        algorithm: As for :func:`send_allreduce`.

    Raises:
        RuntimeError: sizes or dtypes do not fit; or a list has several
            tensors, but not one for each rank.
    """
    most = max(given.numel() for _, given in xs)
    for outs, _ in xs:
        if len(outs) > 1:
            check_one_for_each(outs, xs)
    flats = []
    for rank, (outs, given) in enumerate(xs):
        for source, out in enumerate(outs):
            check_sizes(xs[source][1], out, len(xs) // len(outs))
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

    Args:
        xs: ``xs[r]`` is a pair for rank r: the tensor that it takes, and the
            list that it gives, of one tensor or of a tensor for each rank.
        algorithm: As for :func:`send_allreduce`, with ``op`` and ``factor``.
        op: What they are reduced by.
        factor: What they are multiplied by before.

    Raises:
        RuntimeError: sizes or dtypes do not fit; or a list has several
            tensors, but not one for each rank.
    """
    most = max(part.numel() for _, parts in xs for part in parts)
    for _, parts in xs:
        if len(parts) > 1:
            check_one_for_each(parts, xs)
    flats = [flat_copy(parts, most) for _, parts in xs]
    before_adding(flats, factor)
    sums = collectives.reduce_scatter(flats, op, _or("ring", algorithm))
    for rank, ((out, parts), part) in enumerate(zip(xs, sums)):
        check_sizes(out, parts[rank % len(parts)], len(xs) // len(parts))
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
            outs = for_all(xs[target][0], xs)
            pairs.append((for_all(given, xs)[target], outs[rank]))
        send_all(pairs)


def send_scatter(xs: list[Any], algorithm: str, root: int) -> None:
    """Put the tensors that the root gives into what each takes."""
    given = for_all(xs[root][1], xs)
    send_all(list(zip(given, [out for out, _ in xs])))


def send_gather(xs: list[Any], algorithm: str, root: int) -> None:
    """Put what each gives into the tensors that the root takes."""
    outs = for_all(xs[root][0], xs)
    send_all(list(zip([given for _, given in xs], outs)))


def send_message(xs: list[Tensor], algorithm: str) -> None:
    """Copy the tensor of the first rank to that of the second."""
    given, out = xs
    _shaped(out, given).copy_(given)


def send_barrier(xs: list[int], algorithm: str) -> None:
    """Hold the hosts of these ranks until all have arrived."""
    meet([torch.device("sim", rank) for rank in xs])


def flat_copy(parts: Sequence[Tensor], most: int | None = None) -> Tensor:
    """Return parts in one flat tensor; part r begins at ``r * most``.

    None: they are as long as the first, and adjoin.
    """
    most = parts[0].numel() if most is None else most
    flat = scratch(parts[0], most * len(parts))
    for rank, part in enumerate(parts):
        put(part, flat, to=rank * most)
    return flat


def send_all(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Send the first tensor of each pair into the second."""
    shaped = [(given, _shaped(out, given)) for given, out in pairs]
    full = [(given, out) for given, out in shaped if given.numel()]
    messages = [send(given, out.device, out) for given, out in full]
    for message in messages:
        message.wait()


def _shaped(out: Tensor, given: Tensor) -> Tensor:
    check_sizes(given, out)
    return out if out.shape == given.shape else out.view(given.shape)


def check_sizes(part: Tensor, whole: Tensor, count: int = 1) -> None:
    """Check that so many tensors of the size of a part fill another.

    In an allgather the whole is what a rank takes, in a reduce-scatter what
    it gives.

    Raises:
        RuntimeError: the numbers of elements do not fit, or the dtypes differ.
    """
    if (part.numel() * count, part.dtype) != (whole.numel(), whole.dtype):
        raise RuntimeError(
            "what is given and what is taken differ in size or dtype (a part: "
            f"{tuple(part.shape)} {part.dtype}, the whole: "
            f"{tuple(whole.shape)} {whole.dtype}, parts: {count})"
        )


def for_all(tensors: list[Tensor], ranks: Sequence[Any]) -> list[Tensor]:
    """Return a list of tensors that has one for each rank.

    Raises:
        RuntimeError: it has more, or fewer.
    """
    check_one_for_each(tensors, ranks)
    return tensors


def check_one_for_each(tensors: list[Tensor], ranks: Sequence[Any]) -> None:
    """Raise RuntimeError unless there is one tensor for each rank."""
    if len(tensors) != len(ranks):
        found = f"tensors: {len(tensors)}, ranks: {len(ranks)}"
        raise RuntimeError(f"a list needs a tensor for each rank ({found})")


#: Each kind of operation -> the function that sends it.
SENDERS: dict[str, Callable[..., None]] = {
    "allreduce": send_allreduce,
    "broadcast": send_broadcast,
    "reduce": send_reduce,
    "allgather": send_allgather,
    "reduce_scatter": send_reduce_scatter,
    "all_to_all": send_all_to_all,
    "scatter": send_scatter,
    "gather": send_gather,
    "message": send_message,
    "barrier": send_barrier,
}
