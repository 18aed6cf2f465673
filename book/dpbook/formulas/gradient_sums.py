"""What adding up one gradient over k devices takes, hosts and devices.

By hand each message and each addition is launched by a host; a library
launches one kernel on each device. One gradient takes::

                    launches                     views, which launch nothing
    one host
      star          3(k - 1)                     2k + 4(k - 1)
      ring          3k(k - 1)                    2k + 4k(k - 1)
      library       k                            0
    a host for each device; the busiest of them
      star          3(k - 1)                     2 + 2(k - 1)
      ring          5(k - 1)                     2 + 4(k - 1)
      library       1                            0

    k = 2, one host, star: a copy there, an addition, a copy back
"""

from dataclasses import replace
from typing import NamedTuple

from dpbook.formulas.overlap import ring_seconds
from dpkit.plans import FREE_HOST, library_seconds
from dpkit.sim.hardware import Cluster, copy_seconds, operation_seconds
from dpkit.units import check_known

SUMS = ("star", "ring", "library")


class Sum(NamedTuple):
    """The seconds and launches of adding up one gradient over all devices."""

    launches: int
    views: int
    seconds: float  #: of the devices and the link
    last: float  #: of what the last launch is for


def gradient_sum(algorithm: str, num_bytes: int, cluster: Cluster) -> Sum:
    """Return the cost of adding up one gradient over all devices.

    Args:
        algorithm: A name in ``SUMS``.
        num_bytes: The size of the gradient.
        cluster: The devices, their hosts and links.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> cards = cluster(2, "v100-pcie", "pcie3")
        >>> star = gradient_sum("star", 409_600, cards)
        >>> star.launches, star.views, f"{1e6 * star.seconds:.0f} µs"
        (3, 8, '93 µs')
    """
    check_known("algorithm", algorithm, SUMS)
    k = cluster.num_devices
    one = cluster.hosts == "one"
    others = k - 1
    if algorithm == "library":
        taken = library_seconds("allreduce", range(k), num_bytes, cluster)
        return Sum(
            launches=k if one else 1, views=0, seconds=taken, last=taken
        )
    copy = copy_seconds(cluster.link, num_bytes)
    if algorithm == "star":
        add = operation_seconds(
            cluster.accelerator, flops=0, num_bytes=3 * num_bytes
        )
        views = 2 * k + 4 * others if one else 2 + 2 * others
        return Sum(
            launches=3 * others,
            views=views,
            seconds=others * (2 * copy + add),
            last=copy,
        )
    free = replace(cluster, host=FREE_HOST)
    taken = ring_seconds(num_bytes, free, "sum")
    last = copy_seconds(cluster.link, num_bytes / k)
    if one:
        return Sum(
            launches=3 * k * others,
            views=2 * k + 4 * k * others,
            seconds=taken,
            last=last,
        )
    return Sum(
        launches=5 * others, views=2 + 4 * others, seconds=taken, last=last
    )


def bucket_seconds(algorithm: str, num_bytes: int, cluster: Cluster) -> float:
    """Return the seconds of adding up a bucket, and dividing the sum.

    Each device has a host, whose threads of backward launch it. The longer of
    that and of what the devices do counts.

    Args:
        algorithm: A name in ``SUMS``.
        num_bytes: The size of the bucket.
        cluster: The devices, their hosts and links.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> four = cluster(4, "v100", "nvlink2", hosts="per_device")
        >>> times = [bucket_seconds(name, 25 * 2**20, four) for name in SUMS]
        >>> [f"{1e3 * seconds:.2f}" for seconds in times]
        ['1.47', '0.44', '0.39']
    """
    if algorithm == "ring":
        return ring_seconds(num_bytes, cluster)
    each = gradient_sum(algorithm, num_bytes, cluster)
    divide = operation_seconds(
        cluster.accelerator, flops=0, num_bytes=2 * num_bytes
    )
    launching = each.launches * cluster.host.backward_launch_seconds
    return max(each.seconds, launching) + divide
