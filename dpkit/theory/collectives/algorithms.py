"""The ways to reduce, to spread and to exchange, as plans.

Every function here returns data: steps or a plan. ``p`` ranks, a buffer of
``n`` elements on each::

                          steps            a port sends at most
    star                  2(p - 1)         (p - 1) n
    tree                  2 ⌈lg p⌉         ⌈lg p⌉ n
    direct, ring          2(p - 1)         2 (p - 1)/p n
    recursive doubling    lg p             lg p · n             (+ 2 steps if
    halving-doubling      2 lg p           2 (p - 1)/p n         p is no power
    hierarchical          2(g - 1 + k - 1)                       of two)

The hierarchical one is for k nodes of g ranks, where p = k · g.

Source:
    MPICH, src/mpi/coll/allreduce, whose comments state recursive doubling and
    halving-doubling, and what other ranks than a power of two do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from dpkit.theory.collectives.plans import Message, Plan, Step, together
from dpkit.theory.units import check_whole

Chunks = tuple[int, int]  # the first, and one beyond the last


# -- one to all, all to one


def star_reduce(p: int, root: int = 0) -> list[Step]:
    """All send to the root, one after another.

    Example:
        >>> for step in star_reduce(3):
        ...     print(*step)
        1 → 0: + 0
        2 → 0: + 0
    """
    others = [rank for rank in range(p) if rank != root]
    return [[Message(rank, root, 0, 1, adds=True)] for rank in others]


def star_broadcast(p: int, root: int = 0) -> list[Step]:
    """The root sends to all, one after another."""
    others = [rank for rank in range(p) if rank != root]
    return [[Message(root, rank, 0, 1)] for rank in others]


def tree_reduce(p: int, root: int = 0) -> list[Step]:
    """Half of those that are left send to the other half.

    ::

        step 0   1→0   3→2   5→4   7→6
        step 1   2→0         6→4
        step 2   4→0

    Example:
        >>> for step in tree_reduce(6):
        ...     print(*step, sep="; ")
        1 → 0: + 0; 3 → 2: + 0; 5 → 4: + 0
        2 → 0: + 0
        4 → 0: + 0
    """
    steps: list[Step] = []
    for distance in _powers_of_two(p):
        senders = range(distance, p, 2 * distance)
        pairs = [(rank, rank - distance) for rank in senders]
        steps.append(
            [
                Message((s + root) % p, (t + root) % p, 0, 1, adds=True)
                for s, t in pairs
            ]
        )
    return steps


def tree_broadcast(p: int, root: int = 0) -> list[Step]:
    """The same backward: those that have it send to as many that do not."""
    return [
        [Message(m.target, m.source, 0, 1) for m in step]
        for step in reversed(tree_reduce(p, root))
    ]


# -- each rank gets the sum of a part; each rank gives its part to all


def ring_reduce_scatter(
    ranks: Sequence[int], parts: Sequence[Chunks]
) -> list[Step]:
    """Send each part once around; all add to it; it ends where it belongs.

    Args:
        ranks: The members of the ring, in its order.
        parts: ``parts[i]`` is what ``ranks[i]`` ends up with the sum of.

    Example:
        >>> parts = [(0, 1), (1, 2), (2, 3)]
        >>> for step in ring_reduce_scatter([0, 1, 2], parts):
        ...     print(*step, sep="; ")
        0 → 1: + 2; 1 → 2: + 0; 2 → 0: + 1
        0 → 1: + 1; 1 → 2: + 2; 2 → 0: + 0
    """
    size = len(ranks)
    return [
        [
            Message(rank, ranks[(i + 1) % size], *parts[(i - t) % size], True)
            for i, rank in enumerate(ranks)
        ]
        for t in range(1, size)
    ]


def ring_allgather(
    ranks: Sequence[int], parts: Sequence[Chunks]
) -> list[Step]:
    """Send each part once around, from where it is.

    Args:
        ranks: The members of the ring, in its order.
        parts: ``parts[i]`` is what ``ranks[i]`` has.
    """
    size = len(ranks)
    return [
        [
            Message(rank, ranks[(i + 1) % size], *parts[(i - t) % size])
            for i, rank in enumerate(ranks)
        ]
        for t in range(size - 1)
    ]


def direct_reduce_scatter(p: int) -> list[Step]:
    """Each rank sends each part straight to the rank that adds it up."""
    return [
        [_chunk(r, (r + t) % p, (r + t) % p, adds=True) for r in range(p)]
        for t in range(1, p)
    ]


def direct_allgather(p: int) -> list[Step]:
    """Each rank sends its part straight to each other rank."""
    return [[_chunk(r, (r + t) % p, r) for r in range(p)] for t in range(1, p)]


def halving_reduce_scatter(p: int) -> list[Step]:
    """Exchange halves with who is far, quarters with who is nearer, and so on.

    Args:
        p: A power of two.

    Example:
        >>> for step in halving_reduce_scatter(4):
        ...     print(*step, sep="; ")
        0 → 2: + 2–3; 1 → 3: + 2–3; 2 → 0: + 0–1; 3 → 1: + 0–1
        0 → 1: + 1; 1 → 0: + 0; 2 → 3: + 3; 3 → 2: + 2
    """
    return [
        [
            Message(r, r ^ distance, *_block(r ^ distance, distance), True)
            for r in range(p)
        ]
        for distance in reversed(_powers_of_two(p))
    ]


def doubling_allgather(p: int) -> list[Step]:
    """Exchange what one has with who is near, then twice as much, and so on.

    Args:
        p: A power of two.
    """
    return [
        [Message(r, r ^ distance, *_block(r, distance)) for r in range(p)]
        for distance in _powers_of_two(p)
    ]


def _block(rank: int, size: int) -> Chunks:
    """Return the block of ``size`` chunks that holds the rank's own."""
    first = rank - rank % size
    return first, first + size


# -- allreduce


def star(p: int) -> Plan:
    """All to rank 0, which adds, and back."""
    return Plan("star", p, 1, star_reduce(p) + star_broadcast(p))


def tree(p: int) -> Plan:
    """Up a binomial tree to rank 0, and down again."""
    return Plan("tree", p, 1, tree_reduce(p) + tree_broadcast(p))


def direct(p: int) -> Plan:
    """Each rank adds up one part, and gives the sum to all."""
    steps = direct_reduce_scatter(p) + direct_allgather(p)
    return Plan("direct", p, p, steps)


def ring(p: int) -> Plan:
    """Parts go around once to be added up, and once more to all."""
    ranks, parts = range(p), _single_chunks(p)
    steps = ring_reduce_scatter(ranks, parts) + ring_allgather(ranks, parts)
    return Plan("ring", p, p, steps)


def recursive_doubling(p: int) -> Plan:
    """Exchange everything with ranks at distance 1, 2, 4, and so on."""
    steps: list[Step] = [
        [Message(r, r ^ distance, 0, 1, True) for r in range(core(p))]
        for distance in _powers_of_two(core(p))
    ]
    return Plan("recursive doubling", p, 1, _folded(p, 1, steps))


def halving_doubling(p: int) -> Plan:
    """Halve what is exchanged while adding, double it while spreading."""
    q = core(p)
    steps = halving_reduce_scatter(q) + doubling_allgather(q)
    return Plan("halving-doubling", p, q, _folded(p, q, steps))


def hierarchical(p: int, ranks_per_node: int) -> Plan:
    """Rings inside the nodes, and between them with a part of the data.

    Inside each node the ranks scatter the sum of their buffers. Then the
    ranks with the same part, one in each node, form a ring and add it up.
    Then each node gathers what its ranks have::

        node 0    0 1 2 3      rings inside: 0-1-2-3, 4-5-6-7
        node 1    4 5 6 7      rings across: 0-4, 1-5, 2-6, 3-7

    Args:
        p: The number of ranks; those of a node follow each other.
        ranks_per_node: It divides ``p``.

    Raises:
        ValueError: it does not.
    """
    g = ranks_per_node
    if g < 1 or p % g:
        raise ValueError(
            f"the ranks do not fill the nodes (ranks: {p}, ranks_per_node: "
            f"{g})"
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


def core(p: int) -> int:
    """Return the largest power of two that is not above ``p``.

    Example:
        >>> [core(p) for p in (1, 5, 8)]
        [1, 4, 8]
    """
    return 1 << (p.bit_length() - 1)


def _folded(p: int, num_chunks: int, steps: list[Step]) -> list[Step]:
    """Let the ranks beyond the core add to it first, and get it back last."""
    q = core(p)
    if p == q:
        return steps
    into = [Message(q + i, i, 0, num_chunks, True) for i in range(p - q)]
    back = [Message(i, q + i, 0, num_chunks) for i in range(p - q)]
    return [into, *steps, back]


# -- all to all


def pairwise(p: int) -> Plan:
    """Each pair of ranks exchanges two chunks: a transposition.

    In step t ranks r and t - r exchange. So rank r gives away chunk s to
    rank s, which puts it in the place of the chunk that it gives to r.

    Example:
        >>> print(pairwise(3))
        all to all: ranks 3, chunks 3, steps 3
          0 | 1 → 2: = 2 as 1 | 2 → 1: = 1 as 2
          1 | 0 → 1: = 1 as 0 | 1 → 0: = 0 as 1
          2 | 0 → 2: = 2 as 0 | 2 → 0: = 0 as 2
    """
    steps: list[Step] = []
    for t in range(p):
        pairs = [(r, (t - r) % p) for r in range(p)]
        steps.append(
            [Message(r, s, s, s + 1, lands=r) for r, s in pairs if r != s]
        )
    return Plan("all to all", p, p, [step for step in steps if step])


ALLREDUCE: dict[str, Callable[..., Plan]] = {
    "star": star,
    "tree": tree,
    "direct": direct,
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "hierarchical": hierarchical,
}
REDUCE = {"star": star_reduce, "tree": tree_reduce}
BROADCAST = {"star": star_broadcast, "tree": tree_broadcast}


def allreduce_plan(
    algorithm: str, p: int, ranks_per_node: int | None = None
) -> Plan:
    """Return the plan of an allreduce by the name of its algorithm.

    Args:
        algorithm: A name in ``ALLREDUCE``.
        p: The number of ranks.
        ranks_per_node: For "hierarchical", which needs it; for no other.

    Raises:
        TypeError: ``ranks_per_node`` is no whole number.
        ValueError: there is none of this name, ``ranks_per_node`` is missing
            or not wanted, or it does not divide the ranks.

    Example:
        >>> len(allreduce_plan("hierarchical", 8, ranks_per_node=4).steps)
        8
    """
    if algorithm not in ALLREDUCE:
        raise ValueError(
            f"unknown algorithm (algorithm: {algorithm!r}, known: "
            f"{', '.join(ALLREDUCE)})"
        )
    if algorithm == "hierarchical" and ranks_per_node is None:
        raise ValueError(
            "the hierarchical algorithm needs to know the nodes "
            "(ranks_per_node: None)"
        )
    if algorithm != "hierarchical" and ranks_per_node is not None:
        raise ValueError(
            "only the hierarchical algorithm has nodes (algorithm: "
            f"{algorithm!r}, ranks_per_node: {ranks_per_node})"
        )
    if ranks_per_node is not None:
        check_whole("ranks_per_node", ranks_per_node)
    return _made(algorithm, p, ranks_per_node)


@cache
def _made(algorithm: str, p: int, ranks_per_node: int | None) -> Plan:
    """Return a plan that nobody can change, made once."""
    nodes = () if ranks_per_node is None else (ranks_per_node,)
    plan = ALLREDUCE[algorithm](p, *nodes)
    return replace(plan, steps=tuple(tuple(step) for step in plan.steps))


def _powers_of_two(p: int) -> list[int]:
    """Return 1, 2, 4, … below ``p``."""
    return [1 << i for i in range((p - 1).bit_length())]


def _single_chunks(p: int) -> list[Chunks]:
    return [(i, i + 1) for i in range(p)]


def _chunk(
    source: int, target: int, chunk: int, adds: bool = False
) -> Message:
    return Message(source, target, chunk, chunk + 1, adds)
