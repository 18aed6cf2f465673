"""Cut a row of costs into parts that are as equal as possible.

The parts keep the order, as the stages of a network must::

    costs      2 3 4 | 5 6 | 9        three parts, the largest 11
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf

from dpkit.units import check_number, check_whole

NONE = (inf, inf, 0)


def balance(costs: Sequence[float], num_parts: int) -> list[int]:
    """Return how many costs go to each part, so that the largest is least.

    The size of a part is the sum of its costs. No part is empty. Layers that
    cost nothing stay with the one before.

    Args:
        costs: The cost of each layer, in their order.
        num_parts: How many parts to make.

    Raises:
        TypeError: a cost is no number.
        ValueError: there are fewer costs than parts, or a cost is negative or
            not finite.

    Example:
        >>> balance([2, 3, 4, 5, 6, 9], num_parts=3)
        [3, 2, 1]
        >>> balance([5, 0, 5, 0], num_parts=2)
        [2, 2]
    """
    check_whole("num_parts", num_parts)
    if not 1 <= num_parts <= len(costs):
        raise ValueError(
            "there must be at least one part, and a cost for each (costs: "
            f"{len(costs)}, parts: {num_parts})"
        )
    for i, cost in enumerate(costs):
        check_number(f"costs[{i}]", cost)
    if min(costs) < 0:
        raise ValueError(f"a cost is negative (costs: {list(costs)})")
    if not all(cost < inf for cost in costs):
        raise ValueError(f"a cost is not finite (costs: {list(costs)})")
    sums = [0.0, *accumulate(costs)]
    # For the first n costs: the largest part; the squares of all parts, which
    # decide between equals; and where the last part begins. Later is better,
    # so this place is written as its negative.
    best = [(total, total**2, 0) for total in sums]
    cuts = []
    for part in range(1, num_parts):
        before = best
        best = [NONE] * len(sums)
        for n in range(part + 1, len(sums)):
            best[n] = min(
                (
                    max(before[c][0], sums[n] - sums[c]),
                    before[c][1] + (sums[n] - sums[c]) ** 2,
                    -c,
                )
                for c in range(part, n)
            )
        cuts.append([-cut for _, _, cut in best])
    return _lengths(cuts, len(costs))


def _lengths(cuts: list[list[int]], end: int) -> list[int]:
    """Follow the cuts back from the end."""
    lengths: list[int] = []
    for row in reversed(cuts):
        lengths.append(end - row[end])
        end = row[end]
    return [end, *reversed(lengths)]
