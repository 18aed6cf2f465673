"""What a collective of a library takes: one kernel on each device.

A library such as NCCL launches a kernel on each device. The kernels hand
pieces round a ring, with no host in between. It has two protocols and takes
the faster one. Small pieces with a flag in each arrive soon, but fill a
quarter of the link. Large pieces fill the link::

    seconds = 6.6 µs + steps · step seconds · a + b · bytes past a port / rate

               a     b      8 devices, a step of 2 µs, 230 GB/s:
    small      1     4      34.6 µs for 1 kB     34.6 + 128 µs for 4.2 MB
    large    2.5     1      76.6 µs for 1 kB     76.6 +  32 µs for 4.2 MB

Devices of several nodes form rings through all nodes, as many as a node has
ports. So each port carries its part of the bytes, and the slowest link of the
ring sets the rate of all.

Where p ranks hold n bytes each, on k nodes::

                      steps      of them between nodes    bytes past a port
    allreduce         2(p - 1)   2k (none if k = 1)       2 (p - 1)/p n
    reduce-scatter      p - 1     k                         (p - 1)/p n
    allgather           p - 1     k                         (p - 1)/p n
    broadcast, reduce   p - 1     k                                   n

In an all-to-all each rank sends a p-th of its bytes straight to each other.
The pieces leave one after another, by two ports: one inside the node, one to
other nodes. With q ranks on each node::

                      steps      bytes past the inner    past the outer port
    all-to-all            1      (q - 1)/p n             (p - q)/p n

Not modelled: trees, which take fewer steps over many nodes, and sums in the
switch, which a link's rate may contain.

Source:
    NVIDIA/nccl, src/graph/tuning.cc, for the form and the quarter, and issue
    1334, which quotes it, for the 6.6 µs. The 2.5 was chosen by the two tables
    to which NVLink's steps and shares were fitted
    (``recorders.trust.library_fit``).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dpkit.sim.hardware import Cluster, Link
from dpkit.units import check_known

BASE_SECONDS = 6.6e-6


class Protocol(NamedTuple):
    """What a protocol multiplies the time of a step and of a byte by."""

    steps: float
    num_bytes: float


PROTOCOLS = {"small": Protocol(1, 4), "large": Protocol(2.5, 1)}
# How many times each chunk goes round the ring, and whether in p parts.
TRIPS = {
    "allreduce": (2, True),
    "reduce_scatter": (1, True),
    "allgather": (1, True),
    "broadcast": (1, False),
    "reduce": (1, False),
}


class Route(NamedTuple):
    """A ring through devices: what its steps take, and what passes a port."""

    step_seconds: float  # of all steps together
    num_bytes: float
    bytes_per_second: float

    def seconds(self, protocol: Protocol) -> float:
        """Return what the ring takes in one of ``PROTOCOLS``."""
        sending = self.num_bytes / self.bytes_per_second
        waiting = self.step_seconds
        return (
            BASE_SECONDS
            + protocol.steps * waiting
            + protocol.num_bytes * sending
        )


def library_seconds(
    operation: str, devices: Sequence[int], n: float, cluster: Cluster
) -> float:
    """Return the seconds of a library's operation on devices of a cluster.

    Args:
        operation: A name in ``TRIPS``.
        devices: The numbers of the devices that take part.
        n: The bytes on each device.
        cluster: The devices and their links.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> a100s = cluster(8, "a100", "nvlink3")
        >>> [round(1e6 * library_seconds("allreduce", range(8), n, a100s))
        ...  for n in (1e3, 1e6, 1e9)]
        [36, 67, 7897]
    """
    check_known("operation", operation, TRIPS)
    if len(devices) == 1:
        return 0.0
    found = route(operation, devices, n, cluster)
    return min(found.seconds(protocol) for protocol in PROTOCOLS.values())


def passes_a_port(operation: str, p: int, n: float) -> float:
    """Return the bytes that each device sends; it receives as many.

    Args:
        operation: A name in ``TRIPS``.
        p: The number of devices.
        n: The bytes on each of them.

    Example:
        >>> passes_a_port("allreduce", 8, 160)
        280.0
    """
    trips, in_parts = TRIPS[operation]
    return trips * n * (p - 1) / p if in_parts else trips * n


def even_seconds(
    operation: str, *, p: int, stride: int, n: float, cluster: Cluster
) -> float:
    """Return the seconds of a library's operation on evenly spaced devices.

    The devices are 0, ``stride``, 2 · ``stride`` and so on. Where devices
    reach each other, the result is that of :func:`library_seconds`. Here is no
    list of devices to go through, so that thousands of them cost no time.

    Args:
        operation: A name in ``TRIPS``.
        p: How many devices take part.
        stride: The distance from one to the next.
        n: The bytes on each device.
        cluster: The devices and their links.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> nodes = cluster(32, "a100", "nvlink3", ranks_per_node=8)
        >>> ranks = range(0, 32, 2)
        >>> by_list = library_seconds("allreduce", ranks, 1e6, nodes)
        >>> found = even_seconds(
        ...     "allreduce", p=16, stride=2, n=1e6, cluster=nodes
        ... )
        >>> found == by_list
        True
    """
    if p == 1:
        return 0.0
    size = cluster.ranks_per_node or cluster.num_devices
    on_node = min(p, max(1, size // stride))
    found = _ring(
        operation,
        p=p,
        nodes=-(-p // on_node),
        on_node=on_node,
        shared=1,
        n=n,
        cluster=cluster,
    )
    return min(found.seconds(protocol) for protocol in PROTOCOLS.values())


def all_to_all_seconds(
    p: int, stride: int, n: float, cluster: Cluster
) -> float:
    """Return the seconds of a library's all-to-all on evenly spaced devices.

    Each device sends a p-th of its bytes to each other one. Its two ports, to
    devices of its node and to other nodes, send at the same time. The devices
    fill nodes, or several such groups fill a node; in a node all reach each
    other.

    Args:
        p: How many devices take part.
        stride: The distance from one to the next.
        n: The bytes on each device, of which it keeps a p-th.
        cluster: The devices and their links.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> nodes = cluster(32, "h100", "nvlink4", ranks_per_node=8,
        ...                 network="infiniband400")
        >>> for p in (8, 16, 32):
        ...     print(f"{1e3 * all_to_all_seconds(p, 1, 64e6, nodes):.2f} ms")
        0.13 ms
        0.70 ms
        1.04 ms
    """
    if p == 1:
        return 0.0
    size = cluster.ranks_per_node or cluster.num_devices
    on_node = min(p, max(1, size // stride))
    link, network = cluster.link, cluster.network
    sent = [(on_node - 1, link)] if on_node > 1 else []
    sent += [(p - on_node, network)] if p > on_node else []
    routes = [
        Route(each.library_step_seconds, count / p * n, _rate(each))
        for count, each in sent
    ]
    return min(
        max(route.seconds(protocol) for route in routes)
        for protocol in PROTOCOLS.values()
    )


def route(
    operation: str, devices: Sequence[int], n: float, cluster: Cluster
) -> Route:
    """Return the ring that a library's operation takes through devices.

    Args:
        operation: A name in ``TRIPS``.
        devices: The numbers of the devices that take part.
        n: The bytes on each device.
        cluster: The devices and their links.
    """
    on_node = Counter(map(cluster.node_of, devices))
    # Without peer-to-peer the devices of a switch share one path.
    shared = 1
    if not cluster.link.peer_to_peer:
        shared = max(Counter(map(cluster.switch_of, devices)).values())
    return _ring(
        operation,
        p=len(devices),
        nodes=len(on_node),
        on_node=min(on_node.values()),
        shared=shared,
        n=n,
        cluster=cluster,
    )


def _ring(
    operation: str,
    p: int,
    nodes: int,
    on_node: int,
    shared: int,
    n: float,
    cluster: Cluster,
) -> Route:
    """Return the ring of p ranks on nodes with ``on_node`` at least."""
    # 8 devices, 4 on a node: 2 nodes. Each chunk of an allreduce takes 14
    # steps, 4 of them between nodes; a port carries 2 · 7/8 · n inside, and
    # a quarter of that across.
    link = cluster.link
    network = cluster.network
    across = min(nodes, p - 1) if nodes > 1 else 0
    steps = (p - 1 - across) * link.library_step_seconds
    steps += across * network.library_step_seconds
    rates = [_rate(link) / shared] if p > nodes else []
    if across:
        rates.append(on_node * _rate(network))
    trips, _ = TRIPS[operation]
    moved = passes_a_port(operation, p, n)
    return Route(trips * steps, moved, min(rates))


def _rate(link: Link) -> float:
    """Return the bytes per second of a ring over a link."""
    return link.bytes_per_second * link.achieved * link.library_share
