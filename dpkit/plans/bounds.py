"""What no allreduce can beat, and the rate that one seems to have.

Before any algorithm is chosen, three things are known of p ranks with n bytes
each. A rank knows of all others after at least ⌈lg p⌉ messages, because in
each step the number of ranks that know can at most double. In all, p ranks
have to add (p - 1)n bytes. And every rank's part has to leave it, and the sums
of all have to reach it, so 2(p - 1)/p n bytes pass the average port each way.

Where a switch adds, in the network, the last two do not hold.

Source:
    Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters
    of Workstations", 2009, for the bytes; NVIDIA, nccl-tests,
    doc/PERFORMANCE.md, for the bus bandwidth.
"""

from collections.abc import Callable
from typing import NamedTuple

from dpkit.plans.costs import Rates, log2
from dpkit.units import check_known


class Bounds(NamedTuple):
    """Seconds that an allreduce takes at the least, for three reasons."""

    latency: float  #: for the messages that have to follow each other
    bandwidth: float  #: for the bytes that have to pass a port
    reduction: float  #: for what a rank has to add

    @property
    def seconds(self) -> float:
        """What no allreduce beats, the largest of the three."""
        return max(self)


def lower_bounds(p: int, n: float, rates: Rates) -> Bounds:
    """Return what no allreduce by messages between ranks can beat.

    Example:
        >>> lower_bounds(4, 160, Rates(alpha=5, beta=0.5, gamma=0.25))
        Bounds(latency=10, bandwidth=120.0, reduction=30.0)
    """
    part = (p - 1) * n / p
    alpha, beta, gamma = rates
    return Bounds(log2(p) * alpha, 2 * part * beta, part * gamma)


# The bytes that pass a port at the least, for each byte of the size. The size
# is all that a rank has in the end, or had at the start.
SHARES: dict[str, Callable[[int], float]] = {
    "allreduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "allgather": lambda p: (p - 1) / p,
    "alltoall": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "reduce": lambda p: 1.0,
}


def bus_bandwidth(
    collective: str, p: int, *, num_bytes: float, seconds: float
) -> float:
    """Return the rate that each port has, if it sends no more than it must.

    Compare it with the bytes per second that the links promise, whatever the
    number of ranks.

    Args:
        collective: A name in ``SHARES``.
        p: The number of ranks.
        num_bytes: The size of a rank's whole buffer.
        seconds: What the collective took.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> bus_bandwidth("allreduce", 4, num_bytes=160, seconds=2)
        120.0
    """
    return share(collective, p) * num_bytes / seconds


def seconds_at(
    collective: str, p: int, *, num_bytes: float, bytes_per_second: float
) -> float:
    """Return the seconds that a collective took, from its bus bandwidth.

    Args:
        collective: A name in ``SHARES``.
        p: The number of ranks.
        num_bytes: The size of a rank's whole buffer.
        bytes_per_second: The bus bandwidth, as nccl-tests print it.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> seconds_at("allreduce", 4, num_bytes=160, bytes_per_second=120)
        2.0
    """
    return share(collective, p) * num_bytes / bytes_per_second


def share(collective: str, p: int) -> float:
    """Return how many bytes pass a port for each byte of a rank's buffer.

    Raises:
        ValueError: ``collective`` is no name in ``SHARES``.

    Example:
        >>> share("allreduce", 4), share("allgather", 4)
        (1.5, 0.75)
    """
    check_known("collective", collective, SHARES)
    return SHARES[collective](p)


def in_switch_share(p: int) -> float:
    """Return how many bytes pass a port where a switch adds, of each byte.

    This is :func:`share` of an allreduce that runs in the switch.
    Each rank asks for one part of p. The switch fetches that part from all
    ranks, adds, and hands it the sum; the rank sends the sum back, and the
    switch hands a copy to each. So a port sends its n bytes, and then one
    part more; it receives one part, and then n: 1.125 n for 8 ranks.
    """
    return 1 + 1 / p
