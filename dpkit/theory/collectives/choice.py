"""Which algorithm is the fastest, by the closed forms."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpkit.theory.collectives.costs import Rates, seconds

# Where two cost the same, the first. "direct" costs what a ring costs.
CANDIDATES = "ring recursive_doubling halving_doubling tree star".split()


class Choice(NamedTuple):
    """The fastest algorithm, and all others."""

    algorithm: str
    seconds: float
    factor: float  #: how many times as long the next best takes
    ranking: dict[str, float]  #: algorithm -> seconds, the fastest first

    def __str__(self) -> str:
        others = list(self.ranking)[1:]
        if not others:
            return self.algorithm
        return f"{self.algorithm}, {self.factor:.2f} × faster than {others[0]}"


def choose(
    p: int,
    num_bytes: float,
    rates: Rates,
    candidates: Sequence[str] = CANDIDATES,
) -> Choice:
    """Return the fastest algorithm on equal links; of equals the first.

    Raises:
        ValueError: there is no algorithm of a name, or no candidate.

    Example:
        >>> nvlink = Rates(alpha=2.3e-6, beta=1 / 145e9)
        >>> print(choose(6, 1000, nvlink))
        recursive_doubling, 1.50 × faster than halving_doubling
        >>> print(choose(6, 1e9, nvlink))
        ring, 2.10 × faster than halving_doubling
    """
    if not candidates:
        raise ValueError("there is nothing to choose from (candidates: 0)")
    times = {name: seconds(name, p, num_bytes, rates) for name in candidates}
    ranking = dict(sorted(times.items(), key=lambda item: item[1]))
    best, *others = ranking.values()
    factor = others[0] / best if others and best else 1.0
    return Choice(next(iter(ranking)), best, factor, ranking)


def winners(
    world_sizes: Iterable[int],
    sizes: Sequence[float],
    rates: Rates,
    candidates: Sequence[str] = CANDIDATES,
) -> list[list[str]]:
    """Return the fastest for each world size (rows) and size (columns)."""
    return [
        [choose(p, n, rates, candidates).algorithm for n in sizes]
        for p in world_sizes
    ]
