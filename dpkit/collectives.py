"""Operations in which every device takes part: broadcast, reduce, allreduce.

The tensors of all ranks are given as one list: ``tensors[rank]`` lies on
``devices[rank]``. Each operation works in place::

    before            broadcast        reduce (sum)     allreduce (sum)
    rank 0  [1 1]     [1 1]            [6 6]            [6 6]
    rank 1  [2 2]     [1 1]            [2 2]            [6 6]
    rank 2  [3 3]     [1 1]            [3 3]            [6 6]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor

OPS = ("sum", "mean", "max")


@torch.no_grad()
def broadcast(tensors: Sequence[Tensor], root: int = 0) -> None:
    """Copy the root's tensor over everyone else's, in place.

    Args:
        tensors: k tensors of one shape and dtype; ``tensors[r]`` lies on
            ``devices[r]``.
        root: The rank whose values are sent.

    Raises:
        ValueError: no tensors; shapes or dtypes differ; two tensors share
            storage; no such root.

    Example:
        >>> import dpkit, torch
        >>> devices = dpkit.devices(3, kind="sim")
        >>> tensors = [torch.full((2,), r, device=d)
        ...            for r, d in enumerate(devices)]
        >>> dpkit.broadcast(tensors, root=1)
        >>> tensors[2]
        tensor([1, 1], device='sim:2')
    """
    _check_tensors(tensors)
    _check_root(root, len(tensors))
    for rank, tensor in enumerate(tensors):
        if rank != root:
            tensor.copy_(tensors[root])


@torch.no_grad()
def reduce(tensors: Sequence[Tensor], op: str = "sum", root: int = 0) -> None:
    """Leave the sum, mean or maximum of all in the root's tensor, in place.

    The tensors of the other ranks stay as they are. The terms are added in
    order of rank, starting from the root's.

    Args:
        tensors: k tensors of one shape and dtype; ``tensors[r]`` lies on
            ``devices[r]``.
        op: "sum", "mean" or "max", each element by itself.
        root: The rank that receives the result.

    Raises:
        ValueError: no tensors; shapes or dtypes differ; two tensors share
            storage; no such root; an unknown op, the mean of integers, or
            the maximum of complex numbers.

    Example:
        >>> import dpkit, torch
        >>> devices = dpkit.devices(3, kind="sim")
        >>> tensors = [torch.full((2,), r, device=d)
        ...            for r, d in enumerate(devices)]
        >>> dpkit.reduce(tensors, root=2)
        >>> tensors[2], tensors[1]
        (tensor([3, 3], device='sim:2'), tensor([1, 1], device='sim:1'))
    """
    _check_tensors(tensors)
    _check_root(root, len(tensors))
    _check_op(op, tensors[0].dtype)
    total = tensors[root]
    for rank, tensor in enumerate(tensors):
        if rank != root:
            arrived = tensor.to(total.device)
            if op == "max":
                torch.maximum(total, arrived, out=total)
            else:
                total += arrived
    if op == "mean":
        total /= len(tensors)


def allreduce(
    tensors: Sequence[Tensor], op: str = "sum", algorithm: str = "star"
) -> None:
    """Leave the sum, mean or maximum of all tensors in each, in place.

    Args:
        tensors: k tensors of one shape and dtype; ``tensors[r]`` lies on
            ``devices[r]``.
        op: "sum", "mean" or "max", each element by itself.
        algorithm: Who sends what to whom. "star": all send to rank 0, which
            adds and sends the result back.

    Raises:
        ValueError: no tensors; shapes or dtypes differ; two tensors share
            storage; an unknown op or algorithm; the mean of integers, or the
            maximum of complex numbers.

    Example:
        >>> import dpkit, torch
        >>> devices = dpkit.devices(2, kind="sim")
        >>> tensors = [torch.full((1, 3), r + 1.0, device=d)
        ...            for r, d in enumerate(devices)]
        >>> dpkit.allreduce(tensors)
        >>> tensors[1]
        tensor([[3., 3., 3.]], device='sim:1')
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"unknown algorithm (algorithm: {algorithm!r}, known: "
            f"{', '.join(ALGORITHMS)})"
        )
    ALGORITHMS[algorithm](tensors, op)


def star(tensors: Sequence[Tensor], op: str) -> None:
    """Allreduce through rank 0: everyone to it, then it to everyone."""
    reduce(tensors, op, root=0)
    broadcast(tensors, root=0)


ALGORITHMS: dict[str, Callable[[Sequence[Tensor], str], None]] = {
    "star": star,
}


def _check_tensors(tensors: Sequence[Tensor]) -> None:
    """Raise ValueError unless the tensors can take part together."""
    if len(tensors) == 0:
        raise ValueError("no tensors to communicate (tensors: 0)")
    first = tensors[0]
    for rank, tensor in enumerate(tensors):
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                "the tensors of all ranks need one shape and dtype (rank 0: "
                f"{tuple(first.shape)} {first.dtype}, rank {rank}: "
                f"{tuple(tensor.shape)} {tensor.dtype})"
            )
    # A tensor without elements has no memory that another could share.
    ranks = range(len(tensors)) if first.numel() else ()
    for one, other in combinations(ranks, 2):
        if _share_storage(tensors[one], tensors[other]):
            raise ValueError(
                f"two ranks share one storage (ranks: {one} and {other}); "
                "give each a copy of its own, as replicate() does"
            )


def _share_storage(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage() == other.untyped_storage()


def _check_root(root: int, world_size: int) -> None:
    if not 0 <= root < world_size:
        raise ValueError(
            f"the root is not a rank (root: {root}, ranks: 0 to "
            f"{world_size - 1})"
        )


def _check_op(op: str, dtype: torch.dtype) -> None:
    if op not in OPS:
        raise ValueError(f"unknown op (op: {op!r}, known: {', '.join(OPS)})")
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"integers have no exact mean (dtype: {dtype})")
    if op == "max" and dtype.is_complex:
        raise ValueError(f"complex numbers have no order (dtype: {dtype})")
