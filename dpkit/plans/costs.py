"""What a collective operation costs: messages, bytes, seconds.

A message of n bytes takes α + nβ seconds, and adding n bytes to others takes
nγ. An algorithm takes as long as the longest chain of messages and additions
in it, so a time is three counts, of what is in that chain, times three rates.
For p ranks and n bytes, where no two messages share a port or a path::

    star                2(p - 1)(α + nβ) + (p - 1)nγ
    tree                2⌈lg p⌉(α + nβ) + ⌈lg p⌉nγ
    direct, ring        2(p - 1)α + 2(p - 1)/p nβ + (p - 1)/p nγ
    recursive doubling  lg p (α + nβ + nγ)                        (+)
    halving-doubling    2 lg p α + 2(p - 1)/p nβ + (p - 1)/p nγ   (+)
    hierarchical        a ring of g inside, one of k across with n/g bytes

(+) where p is no power of two, p is the largest one below, and 2(α + nβ) + nγ
are added. Exact where the chunks are equal: where p divides n, in
halving-doubling that power of two.

In all functions here ``algorithm`` is a name in ``CHAINS``, ``p`` the number
of ranks, ``n`` the bytes on each, and ``g`` the number of ranks in a node.

Source:
    MPICH, src/mpi/coll/allreduce, whose comments state recursive doubling and
    halving-doubling in these terms, the folded ones too.
"""

from collections.abc import Callable
from typing import NamedTuple

from dpkit.plans.doubling import core
from dpkit.units import check_known


class Rates(NamedTuple):
    """What messages and additions take, in seconds."""

    alpha: float  #: to start a message, whatever its length
    beta: float  #: to send a byte
    gamma: float = 0  #: to add a byte to another


class Chain(NamedTuple):
    """What is in the longest chain of messages and additions.

    Example:
        >>> chain("ring", 4, 160)
        Chain(messages=6, num_bytes=240.0, added_bytes=120.0)
        >>> chain("ring", 4, 160).seconds(Rates(1, 0.5, 0.25))
        156.0
    """

    messages: float  #: how many follow each other
    num_bytes: float  #: what they carry together
    added_bytes: float  #: what is added up in between

    def seconds(self, rates: Rates) -> float:
        """Return what the chain takes; exact where fractions are given."""
        return (
            self.messages * rates.alpha
            + self.num_bytes * rates.beta
            + self.added_bytes * rates.gamma
        )


def star_chain(p: int, n: float) -> Chain:
    """Return the chain at the root: it adds before it receives more."""
    return Chain(2 * (p - 1), 2 * (p - 1) * n, (p - 1) * n)


def tree_chain(p: int, n: float) -> Chain:
    """Return the chain at the root, up the tree and down again."""
    return Chain(2 * log2(p), 2 * log2(p) * n, log2(p) * n)


def ring_chain(p: int, n: float) -> Chain:
    """Return the chain of an allreduce by parts: a ring, or direct."""
    part = (p - 1) * n / p  # what a rank sends in each half
    return Chain(2 * (p - 1), 2 * part, part)


def recursive_doubling_chain(p: int, n: float) -> Chain:
    """Return the chain of exchanging everything, and of folding."""
    steps = log2(core(p))
    return _with_folds(p, n, Chain(steps, steps * n, steps * n))


def halving_doubling_chain(p: int, n: float) -> Chain:
    """Return the chain of halving and doubling, and of folding."""
    q = core(p)
    _, moved, added = ring_chain(q, n)
    return _with_folds(p, n, Chain(2 * log2(q), moved, added))


CHAINS: dict[str, Callable[[int, float], Chain]] = {
    "star": star_chain,
    "tree": tree_chain,
    "direct": ring_chain,
    "ring": ring_chain,
    "recursive_doubling": recursive_doubling_chain,
    "halving_doubling": halving_doubling_chain,
}


def chain(algorithm: str, p: int, n: float) -> Chain:
    """Return the longest chain of an allreduce on equal links.

    Raises:
        ValueError: the name is not in ``CHAINS``, or there is no rank.
    """
    check_known("algorithm", algorithm, CHAINS)
    if p < 1:
        raise ValueError(f"the number of ranks is below one (ranks: {p})")
    return CHAINS[algorithm](p, n)


def seconds(algorithm: str, p: int, n: float, rates: Rates) -> float:
    """Return the seconds of an allreduce in which no two messages contend.

    Args:
        algorithm: A name in ``CHAINS``.
        p: The number of ranks.
        n: The bytes on each rank.
        rates: The seconds for a message, and for a byte sent or added.

    Raises:
        ValueError: the name is unknown, or there is no rank.

    Example:
        160 MB on 4 devices, over links of 16 GB/s:

        >>> [round(seconds(name, 4, 160e6, Rates(0, 1 / 16e9)), 3)
        ...  for name in ("star", "ring")]
        [0.06, 0.015]
    """
    return chain(algorithm, p, n).seconds(rates)


def hierarchical_seconds(
    p: int, n: float, g: int, *, inside: Rates, across: Rates
) -> float:
    """Return the seconds of an allreduce by rings inside and across nodes.

    Args:
        p: The number of ranks.
        n: The bytes on each rank.
        g: The number of ranks in a node.
        inside: The rates of the links inside a node.
        across: The rates of the network between nodes.

    Raises:
        ValueError: the ranks do not fill the nodes.

    Example:
        >>> inside, across = Rates(1, 0.5), Rates(5, 2)
        >>> hierarchical_seconds(8, 160, 4, inside=inside, across=across)
        216.0
    """
    if g < 1 or p % g:
        raise ValueError(
            f"the ranks do not fill the nodes (ranks: {p}, in a node: {g}); "
            "give a divisor of the number of ranks"
        )
    in_node = ring_chain(g, n)
    between = ring_chain(p // g, n / g)
    return in_node.seconds(inside) + between.seconds(across)


def log2(p: int) -> int:
    """Return the binary logarithm, rounded up: 0, 1, 3, 3 of 1, 2, 5, 8."""
    return (p - 1).bit_length()


def _with_folds(p: int, n: float, inner: Chain) -> Chain:
    """Add what ranks beyond a power of two do: in first, out last."""
    if p == core(p):
        return inner
    messages, moved, added = inner
    return Chain(messages + 2, moved + 2 * n, added + n)
