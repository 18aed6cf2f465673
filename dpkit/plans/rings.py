"""Rings: parts go around, from each rank to the next.

In a reduce-scatter each rank ends up with the sum of a part; in an allgather
each gives its part to all. One after the other they are an allreduce.
"""

from collections.abc import Sequence

from dpkit.plans.plan import (
    Chunks,
    Message,
    Plan,
    Step,
    together,
)
from dpkit.units import check_count, check_whole

# i is the place of a rank in the ring, t the step. Each part goes around in
# the order of places, so the rank in place i sends part (i - t) % size. Four
# ranks; the table holds the numbers of the parts:
#
#               rank 0   rank 1   rank 2   rank 3
#     t = 1        3        0        1        2      sent to the next rank,
#     t = 2        2        3        0        1      which adds it to its own
#     t = 3        1        2        3        0
#
# In the last step rank 2 receives part (1 - 3) % 4 = 2: its own, summed up.


def ring_reduce_scatter(
    ranks: Sequence[int], parts: Sequence[Chunks]
) -> list[Step]:
    """Return the steps of a reduce-scatter by a ring.

    Each part goes around once and each rank adds to it.

    Args:
        ranks: The ranks in the order of the ring.
        parts: The chunks of each part; ``ranks[i]`` ends up with the sum of
            ``parts[i]``.

    Example:
        >>> parts = [(0, 1), (1, 2), (2, 3)]
        >>> for step in ring_reduce_scatter([0, 1, 2], parts):
        ...     print(*step, sep="; ")
        0 → 1: + 2; 1 → 2: + 0; 2 → 0: + 1
        0 → 1: + 1; 1 → 2: + 2; 2 → 0: + 0
    """
    _check_parts(ranks, parts)
    size = len(ranks)
    return [
        [
            Message(
                rank, ranks[(i + 1) % size], *parts[(i - t) % size], adds=True
            )
            for i, rank in enumerate(ranks)
        ]
        for t in range(1, size)
    ]


# The same formula, one step earlier: at t = 0 each rank sends its own part.
#
#               rank 0   rank 1   rank 2   rank 3
#     t = 0        0        1        2        3      put in place by the next
#     t = 1        3        0        1        2
#     t = 2        2        3        0        1


def ring_allgather(
    ranks: Sequence[int], parts: Sequence[Chunks]
) -> list[Step]:
    """Return the steps of an allgather by a ring: each part goes around.

    Args:
        ranks: The ranks in the order of the ring.
        parts: The chunks of each part; at first ``ranks[i]`` has
            ``parts[i]``.

    Example:
        >>> parts = [(0, 1), (1, 2), (2, 3)]
        >>> for step in ring_allgather([0, 1, 2], parts):
        ...     print(*step, sep="; ")
        0 → 1: = 0; 1 → 2: = 1; 2 → 0: = 2
        0 → 1: = 2; 1 → 2: = 0; 2 → 0: = 1
    """
    _check_parts(ranks, parts)
    size = len(ranks)
    return [
        [
            Message(rank, ranks[(i + 1) % size], *parts[(i - t) % size])
            for i, rank in enumerate(ranks)
        ]
        for t in range(size - 1)
    ]


def _check_parts(ranks: Sequence[int], parts: Sequence[Chunks]) -> None:
    """Raise ValueError unless there are ranks, each with a part."""
    check_count("ranks", len(ranks))
    if len(parts) != len(ranks):
        raise ValueError(
            "each rank of a ring needs one part (parts: "
            f"{len(parts)}, ranks: {len(ranks)})"
        )


def ring(p: int) -> Plan:
    """Return the plan of an allreduce by a ring.

    Parts go around once to be added up, and once more to all.

    Example:
        >>> print(ring(3))
        ring: ranks 3, chunks 3, steps 4
          0 | 0 → 1: + 2 | 1 → 2: + 0 | 2 → 0: + 1
          1 | 0 → 1: + 1 | 1 → 2: + 2 | 2 → 0: + 0
          2 | 0 → 1: = 0 | 1 → 2: = 1 | 2 → 0: = 2
          3 | 0 → 1: = 2 | 1 → 2: = 0 | 2 → 0: = 1
    """
    check_count("p", p)
    ranks = range(p)
    parts = [(i, i + 1) for i in range(p)]
    steps = ring_reduce_scatter(ranks, parts) + ring_allgather(ranks, parts)
    return Plan("ring", p, p, steps)


# k nodes of g ranks; the buffer has p = k · g chunks, k of them for each
# place in a node. Two nodes of four ranks, eight chunks:
#
#     node 0     rank 0    rank 1    rank 2    rank 3     rings inside:
#     node 1     rank 4    rank 5    rank 6    rank 7     0-1-2-3, 4-5-6-7
#     part       0–1       2–3       4–5       6–7        i·k to (i + 1)·k - 1
#     ring       0-4       1-5       2-6       3-7        rings across


def hierarchical(p: int, ranks_per_node: int) -> Plan:
    """Return the plan of an allreduce by rings inside and across nodes.

    Inside each node the ranks scatter the sum of their buffers. Then the
    ranks with the same part, one in each node, form a ring and add it up.
    Then each node gathers what its ranks have. The ranks of a node follow
    each other.

    Args:
        p: The number of ranks.
        ranks_per_node: How many of them are on each node.

    Raises:
        ValueError: the ranks do not fill the nodes.

    Example:
        >>> nodes = hierarchical(12, ranks_per_node=4)
        >>> len(nodes.steps), len(ring(12).steps)  # 2(3 + 2) and 2 · 11
        (10, 22)
    """
    check_count("p", p)
    check_whole("ranks_per_node", ranks_per_node)
    g = ranks_per_node
    if g < 1 or p % g:
        raise ValueError(
            f"the ranks do not fill the nodes (ranks: {p}, ranks_per_node: "
            f"{g}); give a divisor of the number of ranks"
        )
    k = p // g
    nodes = [range(first, first + g) for first in range(0, p, g)]
    inside = [(i * k, (i + 1) * k) for i in range(g)]
    scatter = together(*[ring_reduce_scatter(n, inside) for n in nodes])
    across = [_ring_across(range(i, p, g), i * k) for i in range(g)]
    gather = together(*[ring_allgather(n, inside) for n in nodes])
    steps = [*scatter, *together(*across), *gather]
    return Plan("hierarchical", p, p, steps)


def _ring_across(ranks: Sequence[int], first: int) -> list[Step]:
    """Return a ring that adds up ``len(ranks)`` chunks from ``first``."""
    parts = [(i + first, i + first + 1) for i in range(len(ranks))]
    return ring_reduce_scatter(ranks, parts) + ring_allgather(ranks, parts)
