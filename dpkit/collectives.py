"""Operations in which every device takes part, such as an allreduce.

The tensors of all ranks are given as one list, of one shape and dtype:
``tensors[rank]`` lies on ``devices[rank]``. Each operation works in place::

    before            broadcast        reduce (sum)     allreduce (sum)
    rank 0  [1 1]     [1 1]            [6 6]            [6 6]
    rank 1  [2 2]     [1 1]            [2 2]            [6 6]
    rank 2  [3 3]     [1 1]            [3 3]            [6 6]

Three more work on parts of the tensors. Part r belongs to rank r; a dot is
what is left there, of no use to anyone::

    before            reduce_scatter   allgather        alltoall
    rank 0  [a b c]   [A · ·]          [a e i]          [a d g]
    rank 1  [d e f]   [· B ·]          [a e i]          [b e h]
    rank 2  [g h i]   [· · C]          [a e i]          [c f i]

where A = a + d + g and so on. An allgather after a reduce_scatter makes an
allreduce. Parts are cut along the flattened elements; where the ranks do not
divide these, the first parts have one element more.

Each operation is a list of messages first
(``dpkit.plans.algorithms``), and the list is what is run. A mean
is divided last: in half precision the sum may overflow before.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from dpkit.arguments import check_root, check_tensors
from dpkit.library import LIBRARY, perform
from dpkit.plan_runner import check_op, run
from dpkit.plans import Chunks, Plan, Step, algorithms, direct, rings, trees
from dpkit.units import check_known

# "library" has a plan too, of what it computes.
ALGORITHMS = (*algorithms.ALLREDUCE, LIBRARY)
BROADCASTS = {**algorithms.BROADCAST, LIBRARY: trees.star_broadcast}
REDUCES = {**algorithms.REDUCE, LIBRARY: trees.star_reduce}
SCATTERS: dict[str, Callable[[int], list[Step]]] = {
    "ring": lambda p: rings.ring_reduce_scatter(*_members(p)),
    "direct": direct.direct_reduce_scatter,
    LIBRARY: lambda p: rings.ring_reduce_scatter(*_members(p)),
}
GATHERS: dict[str, Callable[[int], list[Step]]] = {
    "ring": lambda p: rings.ring_allgather(*_members(p)),
    "direct": direct.direct_allgather,
    LIBRARY: lambda p: rings.ring_allgather(*_members(p)),
}


def broadcast(
    tensors: Sequence[Tensor], root: int = 0, algorithm: str = "star"
) -> None:
    """Copy the root's tensor over everyone else's, in place.

    ``tensors`` are k of one shape and dtype, ``tensors[r]`` on ``devices[r]``.

    In the algorithm "star" the root sends to all; in "tree" the ranks that
    have it send it on; for "library" see :func:`allreduce`.

    Raises:
        ValueError: as for :func:`allreduce`, or the root is not a rank.

    Example:
        >>> tensors = [torch.full((2,), r, device=d)
        ...            for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> dpkit.broadcast(tensors, root=1)
        >>> tensors[2]
        tensor([1, 1], device='sim:2')
    """
    check_tensors(tensors)
    check_root(root, len(tensors))
    check_known("algorithm", algorithm, BROADCASTS)
    steps = BROADCASTS[algorithm](len(tensors), root)
    plan = Plan("broadcast", len(tensors), 1, steps)
    with flattened(tensors) as flats:
        perform(algorithm, "broadcast", plan, flats, root=root)


def reduce(
    tensors: Sequence[Tensor],
    op: str = "sum",
    root: int = 0,
    algorithm: str = "star",
) -> None:
    """Reduce the tensors of all to one, in the root's tensor.

    The tensors of the other ranks stay as they are.

    Args:
        tensors: k of one shape and dtype, ``tensors[r]`` on ``devices[r]``.
        op: "sum", "mean", "product", "max" or "min".
        root: The rank whose tensor gets the result.
        algorithm: In "star" all send to the root, which adds in order of
            rank, starting from its own. In "tree", half of the ranks that
            are left send to the other half. For "library" see
            :func:`allreduce`.

    Raises:
        ValueError: as for :func:`allreduce`, or the root is not a rank.

    Example:
        >>> tensors = [torch.full((2,), r, device=d)
        ...            for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> dpkit.reduce(tensors, root=2)
        >>> tensors[2], tensors[1]
        (tensor([3, 3], device='sim:2'), tensor([1, 1], device='sim:1'))
    """
    check_tensors(tensors)
    check_root(root, len(tensors))
    check_op(op, tensors[0].dtype)
    check_known("algorithm", algorithm, REDUCES)
    steps = REDUCES[algorithm](len(tensors), root)
    plan = Plan("reduce", len(tensors), 1, steps)
    # In a tree, others add too: they do so in a copy.
    adding = {m.target for m in plan.messages} - {root}
    with flattened([tensors[root]]) as (total,):
        flats = [t.detach().reshape(-1) for t in tensors]
        for rank in sorted(adding):
            flats[rank] = flats[rank].clone()
        flats[root] = total
        perform(algorithm, "reduce", plan, flats, op=op, root=root)
        _divide([total], op, len(tensors))


def allreduce(
    tensors: Sequence[Tensor],
    op: str = "sum",
    algorithm: str = "ring",
    ranks_per_node: int | None = None,
) -> None:
    """Reduce the tensors of all to one, in each of them.

    All ranks end up with the same bits. In which order the terms were added
    depends on the algorithm.

    Args:
        tensors: k of one shape and dtype, ``tensors[r]`` on ``devices[r]``;
            no two share memory.
        op: "sum", "mean", "product", "max" or "min".
        algorithm: Who sends what to whom: "star", "tree", "direct", "ring",
            "recursive_doubling", "halving_doubling" or "hierarchical"; or
            "library": all in one kernel on each device, by NCCL on GPUs.
        ranks_per_node: For "hierarchical" alone: the first so many ranks are
            on one node, the next on another, and so on. It may stand in the
            name: "hierarchical:4".

    Raises:
        ValueError: shapes or dtypes differ, tensors share memory, the op is
            not defined for the dtype, or the algorithm does not fit the ranks.

    Example:
        >>> tensors = [torch.full((1, 3), r + 1.0, device=d)
        ...            for r, d in enumerate(dpkit.devices(2, kind="sim"))]
        >>> dpkit.allreduce(tensors)
        >>> tensors[1]
        tensor([[3., 3., 3.]], device='sim:1')
    """
    check_tensors(tensors)
    check_op(op, tensors[0].dtype)
    p = len(tensors)
    plan = planned_allreduce(algorithm, p, ranks_per_node)
    with flattened(tensors) as flats:
        perform(algorithm, "allreduce", plan, flats, op=op)
        _divide(flats, op, p)


def planned_allreduce(
    algorithm: str, p: int, ranks_per_node: int | None = None
) -> Plan:
    """Return the plan of an allreduce of p ranks, by its algorithm.

    The arguments and the errors are those of :func:`allreduce`.
    """
    check_algorithm(algorithm)
    name = "ring" if algorithm == LIBRARY else algorithm
    return algorithms.allreduce_plan(name, p, ranks_per_node)


def check_algorithm(algorithm: str) -> None:
    """Raise ValueError unless an allreduce has an algorithm of this name.

    The number of ranks on a node may stand in it: "hierarchical:4".
    """
    check_known("algorithm", str(algorithm).partition(":")[0], ALGORITHMS)


def reduce_scatter(
    tensors: Sequence[Tensor], op: str = "sum", algorithm: str = "ring"
) -> list[Tensor]:
    """Leave with each rank the sum of its part of all tensors.

    ``tensors`` are k of one shape and dtype, ``tensors[r]`` on ``devices[r]``.

    What is left in the other parts of each tensor is of no use. In the
    algorithm "direct" each part goes straight to its rank; for "library" see
    :func:`allreduce`.

    Return the results, k tensors of shape (elements of the part,), which are
    views of ``tensors`` where these are contiguous. Errors are those of
    :func:`allreduce`.

    Example:
        >>> tensors = [torch.arange(5, device=d) * 10**r
        ...            for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> [part.tolist() for part in dpkit.reduce_scatter(tensors)]
        [[0, 111], [222, 333], [444]]
    """
    check_tensors(tensors)
    check_op(op, tensors[0].dtype)
    check_known("algorithm", algorithm, SCATTERS)
    p = len(tensors)
    with flattened(tensors) as flats:
        plan = Plan("reduce-scatter", p, p, SCATTERS[algorithm](p))
        perform(algorithm, "reduce_scatter", plan, flats, op=op)
        parts = [flat.tensor_split(p)[r] for r, flat in enumerate(flats)]
        _divide(parts, op, p)
    return parts


def allgather(tensors: Sequence[Tensor], algorithm: str = "ring") -> None:
    """Give every rank the part of each other rank, in place.

    ``tensors`` are k of one shape and dtype, ``tensors[r]`` on ``devices[r]``.

    Part r of ``tensors[r]`` goes to all. In the algorithm "direct" it goes
    straight to each rank; for "library" see :func:`allreduce`. Errors are
    those of :func:`allreduce`.

    Example:
        >>> tensors = [torch.full((5,), r, device=d)
        ...            for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> dpkit.allgather(tensors)
        >>> tensors[0]
        tensor([0, 0, 1, 1, 2], device='sim:0')
    """
    check_tensors(tensors)
    check_known("algorithm", algorithm, GATHERS)
    p = len(tensors)
    with flattened(tensors) as flats:
        plan = Plan("allgather", p, p, GATHERS[algorithm](p))
        perform(algorithm, "allgather", plan, flats)


def alltoall(tensors: Sequence[Tensor]) -> None:
    """Exchange part s of rank r with part r of rank s, in place.

    ``tensors`` are k of one shape and dtype, ``tensors[r]`` on ``devices[r]``.

    Raises:
        ValueError: the ranks do not divide the number of elements.

    Example:
        >>> tensors = [10 * r + torch.arange(3, device=d)
        ...            for r, d in enumerate(dpkit.devices(3, kind="sim"))]
        >>> dpkit.alltoall(tensors)
        >>> tensors[1]
        tensor([ 1, 11, 21], device='sim:1')
    """
    check_tensors(tensors)
    p = len(tensors)
    # Parts of two sizes could not change places: 7 elements, 3 + 2 + 2.
    if tensors[0].numel() % p:
        raise ValueError(
            "parts that are exchanged need one size (elements: "
            f"{tensors[0].numel()}, ranks: {p})"
        )
    with flattened(tensors) as flats:
        run(direct.pairwise(p), flats)


def _members(p: int) -> tuple[range, list[Chunks]]:
    """Return the members of a ring, and the chunk of each."""
    # Three ranks: members 0 1 2, with the chunks 0:1, 1:2 and 2:3.
    return range(p), [(rank, rank + 1) for rank in range(p)]


@contextmanager
def flattened(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Give the tensors as contiguous ones of shape (n,), to change."""
    with torch.no_grad():
        flats = [
            (t.detach() if t.requires_grad else t).contiguous().view(-1)
            for t in tensors
        ]
        yield flats
        for tensor, flat in zip(tensors, flats):
            if not tensor.is_contiguous():
                tensor.copy_(flat.view_as(tensor))


def _divide(parts: Sequence[Tensor], op: str, count: int) -> None:
    if op == "mean":
        for part in parts:
            part /= count
