"""What each way to split costs, as formulas, for a network of dense layers.

Only products of matrices and messages are counted: what a device computes
besides, and what its memory does, is left out. An allreduce is a star, whose
root sends and receives everything.
"""

from dataclasses import dataclass

from dpkit.theory.hardware.clusters import Cluster
from dpkit.theory.hardware.costs import achieved_flops_per_second

WAYS = ("data", "network", "layer")
SIZE = 4  # bytes of a number


@dataclass(frozen=True)
class Estimate:
    """What a step costs a device; of several, the one that sends most.

    Attributes:
        computing: Seconds of its products, forward and backward.
        sending: Seconds in which its port is busy, one way or the other.
        parameter_bytes: The parameters on it.
        activation_bytes: The activations on it, about.
        seconds: How long the step takes. A pipeline sends while it computes,
            and has a bubble; over a link by way of the host its messages
            share one path. The others wait for their allreduces.
    """

    computing: float
    sending: float
    parameter_bytes: float
    activation_bytes: float
    seconds: float


def estimate(
    way: str,
    rows: int,
    width: int,
    depth: int,
    cluster: Cluster,
    chunks: int = 4,
) -> Estimate:
    """Estimate a step of square dense layers, split over a cluster.

    ``way`` is a name in ``WAYS``. A batch has ``rows`` examples over all
    devices, each with ``width`` numbers in and out of each of ``depth``
    layers; where the network is split, ``chunks`` micro-batches a device.

    Example:
        >>> from dpkit.theory.hardware.clusters import cluster
        >>> four = cluster(4, "v100", "pcie3")
        >>> found = estimate("data", 4096, 4096, 8, four)
        >>> round(found.computing, 3), round(found.sending, 3)
        (0.057, 0.248)
    """
    # A layer's product is 2 · rows · width² flops forward, twice that
    # backward, since both the weights and the inputs get gradients: 6 in all.
    k, activation = cluster.num_devices, SIZE * rows * width
    rate = achieved_flops_per_second(cluster.accelerator, "float32")
    computing = 6 * rows * width**2 * depth / k / rate
    parameters: float = SIZE * depth * (width**2 + width)
    if way == "network":
        sending, path = _border_seconds(cluster, activation, chunks)
        kept = k * (depth / k + 1) * activation / (chunks * k)
        seconds = max(computing * (1 + (k - 1) / (chunks * k)), path)
        return Estimate(computing, sending, parameters / k, kept, seconds)
    if way == "data":
        sending = 2 * (k - 1) * _seconds(cluster, parameters, 2 * depth)
        kept = (depth + 1) * activation / k
    elif way == "layer":
        allreduces = depth - 1  # the first layer's input needs no gradient
        sending = allreduces * 2 * (k - 1) * _seconds(cluster, activation, 1)
        kept = (depth / 2 * (1 + 1 / k) + 1) * activation
        parameters /= k
    else:
        raise _unknown(way)
    return Estimate(computing, sending, parameters, kept, computing + sending)


def _border_seconds(
    cluster: Cluster, activation: float, chunks: int
) -> tuple[float, float]:
    """Return the seconds of a stage's port, and of the path of all."""
    k = cluster.num_devices
    # In and out, forward and backward; at the ends of a pipeline half.
    passes = 4 if k > 2 else 2 * (k - 1)
    port = _seconds(cluster, passes * activation, passes * chunks * k)
    if cluster.link.peer_to_peer:
        return port, port
    passes = 2 * (k - 1)  # all borders share the path through the host
    return port, _seconds(cluster, passes * activation, passes * chunks * k)


def _seconds(cluster: Cluster, num_bytes: float, messages: int) -> float:
    """Return what one port takes for so many bytes in so many messages."""
    link = cluster.link
    rate = link.bytes_per_second * link.achieved
    return messages * link.latency_seconds + num_bytes / rate


def boundary(way: str, num_devices: int, depth: int, ratio: float) -> float:
    """Return the size beyond which computing takes longer than sending.

    Latencies are left out. The size is, for "data", the rows of a device; for
    the others the width of the layers. For "network" there are more than two
    devices, so that one has a neighbour on either side. ``ratio`` is what a
    device computes while a byte passes: its flops a second by the link's
    bytes a second.

    Example:
        >>> [round(boundary(way, 4, depth=8, ratio=100)) for way in WAYS]
        [400, 133, 1400]
    """
    k = num_devices
    if way == "data":  # 6 w² b L / k against 2 (k - 1) 4 w² L, b / k rows
        return 4 / 3 * (k - 1) * ratio
    if way == "network":  # 6 w² b L / k against 4 · 4 w b
        return 8 / 3 * k / depth * ratio
    if way == "layer":  # 6 w² b L / k against (L - 1) 2 (k - 1) 4 w b
        return 4 / 3 * k * (k - 1) * (depth - 1) / depth * ratio
    raise _unknown(way)


def _unknown(way: str) -> ValueError:
    return ValueError(
        f"unknown way to split (way: {way!r}, known: {', '.join(WAYS)})"
    )
