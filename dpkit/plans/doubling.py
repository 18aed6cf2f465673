"""Exchanges in pairs, whose distance or size doubles in every step.

They need a power of two. Where there are more ranks, those beyond it fold:
each first adds its buffer to that of a rank inside, and gets the sum back in
the end.
"""

from dpkit.plans.plan import (
    Chunks,
    Message,
    Plan,
    Step,
    powers_of_two,
)
from dpkit.units import check_count

# Distances are powers of two, so r ^ distance flips one bit of the rank, and
# both ranks of a pair find each other. Rank 5 of 8, which is 101 in binary:
#
#     distance 4    partner 001 = 1    sends 0–3, keeps 4–7    halves
#     distance 2    partner 111 = 7    sends 6–7, keeps 4–5    quarters
#     distance 1    partner 100 = 4    sends 4,   keeps 5      eighths
#
# It sends the block of ``distance`` chunks that its partner's own lies in.
# An allgather goes the other way, from distance 1 on, and sends its own block.


def halving_reduce_scatter(p: int) -> list[Step]:
    """Return the steps of a reduce-scatter by recursive halving.

    Ranks exchange halves with a far rank, quarters with a nearer, and so on.
    ``p`` is a power of two.
    """
    return [
        [
            Message(
                r, r ^ distance, *_block(r ^ distance, distance), adds=True
            )
            for r in range(p)
        ]
        for distance in reversed(powers_of_two(p))
    ]


def doubling_allgather(p: int) -> list[Step]:
    """Return the steps of an allgather by recursive doubling.

    Ranks exchange a chunk with a near rank, two with one farther, and so on.
    ``p`` is a power of two.
    """
    return [
        [Message(r, r ^ distance, *_block(r, distance)) for r in range(p)]
        for distance in powers_of_two(p)
    ]


def _block(rank: int, size: int) -> Chunks:
    """Return the block of ``size`` chunks that holds the rank's own."""
    first = rank - rank % size
    return first, first + size


def recursive_doubling(p: int) -> Plan:
    """Return the plan of an allreduce by exchanges of whole buffers.

    Partners are at distance 1, then 2, then 4, and so on.

    Example:
        Rank 2 is beyond the power of two: it folds.

        >>> print(recursive_doubling(3))
        recursive doubling: ranks 3, chunks 1, steps 3
          0 | 2 → 0: + 0
          1 | 0 → 1: + 0 | 1 → 0: + 0
          2 | 0 → 2: = 0
    """
    check_count("p", p)
    steps: list[Step] = [
        [Message(r, r ^ distance, 0, 1, adds=True) for r in range(core(p))]
        for distance in powers_of_two(core(p))
    ]
    return Plan("recursive doubling", p, 1, _folded(p, 1, steps))


def halving_doubling(p: int) -> Plan:
    """Return the plan of an allreduce by recursive halving, then doubling.

    What is exchanged is halved in each step of the sum, and doubled in each
    step of giving it to all.

    Example:
        >>> print(halving_doubling(4))
        halving-doubling: ranks 4, chunks 4, steps 4
          0 | 0 → 2: + 2–3 | 1 → 3: + 2–3 | 2 → 0: + 0–1 | 3 → 1: + 0–1
          1 | 0 → 1: + 1 | 1 → 0: + 0 | 2 → 3: + 3 | 3 → 2: + 2
          2 | 0 → 1: = 0 | 1 → 0: = 1 | 2 → 3: = 2 | 3 → 2: = 3
          3 | 0 → 2: = 0–1 | 1 → 3: = 0–1 | 2 → 0: = 2–3 | 3 → 1: = 2–3
    """
    check_count("p", p)
    q = core(p)
    steps = halving_reduce_scatter(q) + doubling_allgather(q)
    return Plan("halving-doubling", p, q, _folded(p, q, steps))


def core(p: int) -> int:
    """Return the largest power of two that is not above p: 4 of 5, 8 of 8."""
    return 1 << (p.bit_length() - 1)


# Six ranks, of which four are the core:
#
#     first    4→0, 5→1      added
#     then     0 1 2 3       among themselves
#     last     0→4, 1→5      put in place


def _folded(p: int, num_chunks: int, steps: list[Step]) -> list[Step]:
    """Add the buffers beyond the core first, and send the sum back last."""
    q = core(p)
    if p == q:
        return steps
    into = [Message(q + i, i, 0, num_chunks, adds=True) for i in range(p - q)]
    back = [Message(i, q + i, 0, num_chunks) for i in range(p - q)]
    return [into, *steps, back]
