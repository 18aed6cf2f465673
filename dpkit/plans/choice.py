"""Which algorithm is the fastest, by the closed forms."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpkit.plans.costs import Rates, seconds

# Where two cost the same, the first. "direct" costs what a ring costs.
CANDIDATES = "ring recursive_doubling halving_doubling tree star".split()


class Fastest(NamedTuple):
    """The fastest algorithm, and all others."""

    algorithm: str
    seconds: float
    factor: float  #: how many times as long the next best takes
    ranking: dict[str, float]  #: algorithm -> seconds, the fastest first

    def __str__(self) -> str:
        second = list(self.ranking)[1]
        return f"{self.algorithm}, {self.factor:.2f} × as fast as {second}"


def choose(p: int, num_bytes: float, rates: Rates) -> Fastest:
    """Return the fastest algorithm of an allreduce on equal links.

    Args:
        p: The number of ranks.
        num_bytes: The bytes on each rank.
        rates: What messages and additions take.

    Returns:
        The fastest of ``CANDIDATES``, of equals the first, with all times.

    Example:
        >>> nvlink = Rates(alpha=2.3e-6, beta=1 / 145e9)
        >>> print(choose(6, 1000, nvlink))
        recursive_doubling, 1.50 × as fast as halving_doubling
        >>> print(choose(6, 1e9, nvlink))
        ring, 2.10 × as fast as halving_doubling
    """
    times = {name: seconds(name, p, num_bytes, rates) for name in CANDIDATES}
    ranking = dict(sorted(times.items(), key=lambda item: item[1]))
    best, second, *_ = ranking.values()
    factor = second / best if best else 1.0
    return Fastest(next(iter(ranking)), best, factor, ranking)


def winners(
    world_sizes: Iterable[int], sizes: Sequence[float], rates: Rates
) -> list[list[str]]:
    """Return the fastest algorithm of an allreduce, as a table of names.

    Args:
        world_sizes: Numbers of ranks, one for each row.
        sizes: Bytes on each rank, one for each column.
        rates: What messages and additions take.
    """
    return [
        [choose(p, n, rates).algorithm for n in sizes] for p in world_sizes
    ]
