"""When buckets of gradients have been reduced, while backward goes on.

A bucket can leave when its last gradient is there, on the latest rank, and
when the bucket before has been reduced::

    backward       |== g5 g4 ==|== g3 g2 ==|== g1 g0 ==|
    bucket 0                   |=== cost ===|
    bucket 1                                |=== cost ===|      waits for 0
    bucket 2                                             |= cost =|
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from dpkit.sim.hardware import Cluster, copy_seconds, operation_seconds


def bucket_ends(ready: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Return when each bucket has been reduced, in seconds.

    Args:
        ready: When each bucket has its last gradient, on the latest rank, in
            seconds. The buckets leave in this order.
        costs: The seconds in which each bucket is reduced.

    Example:
        >>> bucket_ends(ready=[2, 4, 6], costs=[3, 3, 1])
        [5, 8, 9]

    Source:
        Li et al., "PyTorch Distributed", 2020, section 3.2.3, for the
        overlap of reduction and backward.
    """
    if len(ready) != len(costs):
        raise ValueError(
            "each bucket needs a time and a cost (times: "
            f"{len(ready)}, costs: {len(costs)})"
        )
    # ready 2 4 6, costs 3 3 1:
    #     max(0, 2) + 3 = 5, max(5, 4) + 3 = 8, max(8, 6) + 1 = 9
    pairs = zip(ready, costs)
    ends = accumulate(
        pairs, lambda end, pair: max(end, pair[0]) + pair[1], initial=0.0
    )
    return list(ends)[1:]


def step_seconds(
    forward: float,
    backward: float,
    ready: Sequence[float],
    costs: Sequence[float],
    update: float = 0.0,
    overlap: bool = True,
) -> float:
    """Return the time of a training step of data parallelism, in seconds.

    Args:
        forward: The seconds of forward.
        backward: The seconds of backward, on the latest rank.
        ready: When each bucket has its last gradient, in seconds from the
            start of backward, on the latest rank.
        costs: The seconds in which each bucket is reduced.
        update: The seconds of the optimizer's step.
        overlap: Whether buckets leave as soon as they are ready. If not, they
            leave when backward is done.

    Example:
        >>> times = dict(forward=3, backward=6, ready=[2, 4, 6])
        >>> step_seconds(**times, costs=[3, 3, 1])
        12.0
        >>> step_seconds(**times, costs=[3, 3, 1], overlap=False)
        16.0
    """
    if not overlap:
        return math.fsum([forward, backward, *costs, update])
    ends = bucket_ends(ready, costs)
    return forward + max([backward, *ends]) + update


def ring_seconds(
    num_bytes: float, cluster: Cluster, op: str = "mean"
) -> float:
    """Return the time to reduce a bucket on all devices of a cluster.

    A ring, in which each device sends and adds a part in each of the first
    steps and sends one in each of the others; a "mean" is divided last. The
    longer of that and of the launches counts, without the first launches.

    Args:
        num_bytes: The size of the bucket.
        cluster: The devices, their hosts and links.
        op: "sum" or "mean".

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> four = cluster(4, "v100", "nvlink2")
        >>> f"{1e3 * ring_seconds(25 * 2**20, four):.2f} ms"
        '0.44 ms'
    """
    p = cluster.num_devices
    gpu = cluster.accelerator
    launch = cluster.host.backward_launch_seconds
    part = num_bytes / p
    copy = copy_seconds(cluster.link, part)
    if not cluster.link.peer_to_peer:
        copy *= p  # the messages of all ranks share one path
    # To add up, two parts are read and one is written.
    add = operation_seconds(gpu, flops=0, num_bytes=3 * part)
    divide = 0.0
    if op == "mean":
        divide = operation_seconds(gpu, flops=0, num_bytes=2 * num_bytes)
    # 4 ranks: 3 steps that send, receive and add, 3 that send and receive.
    first = max(copy + add, 3 * launch)
    second = max(copy, 2 * launch)
    return (p - 1) * (first + second) + divide
