"""What the busiest port of an allreduce sends, in closed form.

``plans.count`` counts the same in a plan, for every port and any buffer.
"""

from __future__ import annotations

from typing import NamedTuple

from dpkit.theory.collectives.algorithms import core
from dpkit.theory.collectives.costs import chain, log2


class Port(NamedTuple):
    """What the busiest port of all sends.

    Attributes:
        messages: How many.
        num_bytes: What they carry together.
    """

    messages: int
    num_bytes: float


def busiest_port(algorithm: str, p: int, n: float) -> Port:
    """Return what the port that sends most sends, where chunks are equal.

    No port receives more than that.

    Args:
        algorithm: A name in ``CHAINS``.
        p: The number of ranks.
        n: Bytes on each rank.

    Raises:
        ValueError: there is none of this name.

    Example:
        >>> busiest_port("star", 4, 160), busiest_port("ring", 4, 160)
        (Port(messages=3, num_bytes=480), Port(messages=6, num_bytes=240.0))
    """
    q, folds = core(p), int(p != core(p))
    if algorithm == "star":
        return Port(p - 1, (p - 1) * n)
    if algorithm == "tree":
        return Port(log2(p), log2(p) * n)
    if algorithm == "recursive_doubling":
        return Port(log2(q) + folds, (log2(q) + folds) * n)
    if algorithm == "halving_doubling":
        sent = 2 * (q - 1) * n / q
        return Port(2 * log2(q) + folds, sent + folds * n)
    messages, moved, _ = chain(algorithm, p, n)
    return Port(int(messages), moved)
