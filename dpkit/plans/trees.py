"""One to all and all to one: a star of messages, or a tree of them."""

from dpkit.plans.plan import Message, Plan, Step, powers_of_two
from dpkit.units import check_count


def star_reduce(p: int, root: int = 0) -> list[Step]:
    """Return the steps of a reduce: all send to the root, one by one."""
    others = [rank for rank in range(p) if rank != root]
    return [[Message(rank, root, 0, 1, adds=True)] for rank in others]


def star_broadcast(p: int, root: int = 0) -> list[Step]:
    """Return the steps of a broadcast: the root sends to all, one by one."""
    others = [rank for rank in range(p) if rank != root]
    return [[Message(root, rank, 0, 1)] for rank in others]


# Eight ranks; a sender is an odd multiple of the distance:
#
#     distance 1    1→0   3→2   5→4   7→6
#     distance 2    2→0         6→4
#     distance 4    4→0
#
# With root r every number is moved by r: 1→0 becomes (1 + r)→r.


def tree_reduce(p: int, root: int = 0) -> list[Step]:
    """Return the steps of a reduce up a binomial tree, to the root.

    In each step, half of the ranks that are left send to the other half.
    """
    return [
        [
            Message((s + root) % p, (s - distance + root) % p, 0, 1, adds=True)
            for s in range(distance, p, 2 * distance)
        ]
        for distance in powers_of_two(p)
    ]


def tree_broadcast(p: int, root: int = 0) -> list[Step]:
    """Return the steps of a broadcast down a binomial tree, from the root.

    In each step, the ranks that have the buffer send it to as many others.

    Example:
        >>> for step in tree_broadcast(5):
        ...     print(*step, sep="; ")
        0 → 4: = 0
        0 → 2: = 0
        0 → 1: = 0; 2 → 3: = 0
    """
    check_count("p", p)
    return [
        [Message(m.target, m.source, 0, 1) for m in step]
        for step in reversed(tree_reduce(p, root))
    ]


def star(p: int) -> Plan:
    """Return the plan of an allreduce: all send to rank 0, and it to all.

    Example:
        >>> print(star(3))
        star: ranks 3, chunks 1, steps 4
          0 | 1 → 0: + 0
          1 | 2 → 0: + 0
          2 | 0 → 1: = 0
          3 | 0 → 2: = 0
    """
    check_count("p", p)
    return Plan("star", p, 1, star_reduce(p) + star_broadcast(p))


def tree(p: int) -> Plan:
    """Return the plan of an allreduce: up a tree to rank 0, and down again."""
    check_count("p", p)
    return Plan("tree", p, 1, tree_reduce(p) + tree_broadcast(p))
