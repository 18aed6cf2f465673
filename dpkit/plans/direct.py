"""Straight from each rank to each other rank, a distance t in step t."""

from dpkit.plans.plan import Message, Plan, Step
from dpkit.units import check_count

# Three ranks, which part goes where; rank r adds up part r:
#
#     reduce-scatter   t = 1    0 -1→ 1    1 -2→ 2    2 -0→ 0
#                      t = 2    0 -2→ 2    1 -0→ 0    2 -1→ 1
#     allgather        t = 1    0 -0→ 1    1 -1→ 2    2 -2→ 0
#                      t = 2    0 -0→ 2    1 -1→ 0    2 -2→ 1


def direct_reduce_scatter(p: int) -> list[Step]:
    """Return steps in which each part goes straight to who adds it up."""
    return [
        [_part(r, (r + t) % p, (r + t) % p, adds=True) for r in range(p)]
        for t in range(1, p)
    ]


def direct_allgather(p: int) -> list[Step]:
    """Return steps in which each rank sends its part straight to all."""
    return [[_part(r, (r + t) % p, r) for r in range(p)] for t in range(1, p)]


def direct(p: int) -> Plan:
    """Return the plan of an allreduce: each rank adds up one part for all."""
    check_count("p", p)
    steps = direct_reduce_scatter(p) + direct_allgather(p)
    return Plan("direct", p, p, steps)


def pairwise(p: int) -> Plan:
    """Return the plan of an all-to-all: ranks exchange chunks in pairs.

    In step t ranks r and t - r exchange. So rank r gives away chunk s to
    rank s, which puts it in the place of the chunk that it gives to r.

    Example:
        >>> print(pairwise(3))
        all to all: ranks 3, chunks 3, steps 3
          0 | 1 → 2: = 2 as 1 | 2 → 1: = 1 as 2
          1 | 0 → 1: = 1 as 0 | 1 → 0: = 0 as 1
          2 | 0 → 2: = 2 as 0 | 2 → 0: = 0 as 2
    """
    check_count("p", p)
    # Step 1 of three: 0 with (1 - 0) % 3 = 1, 1 with 0, and 2 with
    # (1 - 2) % 3 = 2, itself: no message.
    steps: list[Step] = []
    for t in range(p):
        pairs = [(r, (t - r) % p) for r in range(p)]
        step = [
            Message(r, s, first=s, stop=s + 1, lands=r)
            for r, s in pairs
            if r != s
        ]
        steps.append(step)
    return Plan("all to all", p, p, [step for step in steps if step])


def _part(source: int, target: int, part: int, adds: bool = False) -> Message:
    return Message(source, target, first=part, stop=part + 1, adds=adds)
