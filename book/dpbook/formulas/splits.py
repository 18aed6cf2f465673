"""What each way to split costs, as formulas, for a network of dense layers.

The hosts are one for each device, an allreduce is a ring. How forward F,
backward B and allreduces ~ of a device lie in time::

    data       F F F F B B B B          a bucket of gradients is reduced when
                         ~ ~ ~ ~        it is full, during backward
    layer      F F ~ F F ~ B B ~ B B    what comes next needs the result
    network    . F F F F B F B B B .    1F1B: it has bubbles, and each
                                        micro-batch waits for its messages

Each step sends so much, over all devices together, of L layers of width w,
for b rows, over k devices; times 4 bytes in float32::

    data       2(k - 1) w²L         the gradients, once
    layer      2(k - 1)(L - 1) wb   the activations, in pairs of layers
    network    2(k - 1) wb          activations and gradients, at borders

Where all copies pass over one path through the host, the path carries it all.
Where each device has its own ports, a port carries a part of it, and sends
while it receives. A ring gives each port 1/k. A stage between two others
sends one activation and one gradient for each row, 2wb in all; of two stages
each sends one of them, wb.
"""

from dataclasses import dataclass, replace
from math import ceil, fsum

from dpbook.formulas.dense import SIZES, Dense
from dpbook.formulas.overlap import ring_seconds, step_seconds
from dpkit.schedules import hops_waited, makespan
from dpkit.sim.hardware import Cluster, copy_seconds
from dpkit.units import check_known

WAYS = ("data", "network", "layer")
ONE_DEVICE = "one device"  # for comparison
MICRO_BATCHES = 4  # for each device
BUCKET_BYTES = 25 * 2**20  # of gradients that are reduced together


@dataclass(frozen=True)
class Estimate:
    """What a step costs a device; of several, the one that sends most."""

    computing: float  #: seconds in which it computes, forward and backward
    #: Seconds in which its port sends, or in which a shared path is busy.
    sending: float
    #: Seconds of the step in which messages keep it waiting. In a pipeline
    #: the bubble is no part of them.
    waiting: float
    parameter_bytes: float  #: the parameters on it
    activation_bytes: float  #: the activations on it, about
    seconds: float  #: how long the step takes


def estimate(
    way: str,
    *,
    rows: int,
    width: int,
    depth: int,
    cluster: Cluster,
    dtype: str = "float32",
) -> Estimate:
    """Estimate a step of square dense layers, split over a cluster.

    It was compared with 420 simulated steps of layers of 1,024 values or more,
    over five links. All but one are within 15 %, and for each link and way the
    mean miss is 3 % at most. Narrower layers are off by up to 40 %, because it
    leaves out the launches of messages. The chapter on splitting has the
    misses for each link. The simulated steps were in float32; in 16 bits
    nothing was compared.

    Args:
        way: A name in ``WAYS``, or ``ONE_DEVICE``, which leaves all other
            devices idle. Where the network is split, there are 4
            micro-batches a device.
        rows: The examples of a batch, over all devices.
        width: The values that go into each layer and come out of it.
        depth: The number of layers.
        cluster: The devices and their links.
        dtype: In what is computed and sent, a name in ``dense.SIZES``.

    Raises:
        ValueError: there is no such way, or the rows and layers are too few
            for it; or the devices are on several nodes or switches.

    Example:
        >>> from dpkit.sim.hardware.clusters import cluster
        >>> four = cluster(4, "v100", "nvlink2")
        >>> found = [
        ...     estimate(way, rows=4096, width=4096, depth=8, cluster=four)
        ...     for way in WAYS
        ... ]
        >>> [round(1e3 * each.seconds) for each in found]
        [61, 81, 68]
    """
    check_known("way", way, (ONE_DEVICE, *WAYS))
    if way == ONE_DEVICE:
        way = "data"
        cluster = replace(cluster, num_devices=1)
    _check(way, rows, depth, cluster)
    formula = {"data": _data, "layer": _layer, "network": _network}[way]
    return formula(b=rows, w=width, depth=depth, cluster=cluster, dtype=dtype)


def _check(way: str, rows: int, depth: int, cluster: Cluster) -> None:
    k = cluster.num_devices
    if (cluster.ranks_per_node or k) < k or cluster.devices_per_switch:
        raise ValueError(
            "the formulas are for one node with one link (devices: "
            f"{k}, ranks_per_node: {cluster.ranks_per_node}, "
            f"devices_per_switch: {cluster.devices_per_switch})"
        )
    least = {"data": k, "layer": 1, "network": MICRO_BATCHES * k}[way]
    if rows < least or (way == "network" and depth < k):
        raise ValueError(
            f"too few rows or layers for this way (way: {way!r}, rows: "
            f"{rows}, at least: {least}, layers: {depth}, devices: {k})"
        )


def _data(
    *, b: int, w: int, depth: int, cluster: Cluster, dtype: str
) -> Estimate:
    k = cluster.num_devices
    layer = Dense(cluster, rows=b / k, inputs=w, outputs=w, dtype=dtype)
    num_bytes = layer.size * layer.num_parameters
    # Eight layers, three in a bucket: buckets after 3, 6 and 8 of them.
    size = ceil(BUCKET_BYTES / num_bytes)
    ends = [*range(size, depth, size), depth]
    lengths = [end - start for start, end in zip([0, *ends], ends)]
    step = step_seconds(
        forward=depth * layer.forward,
        backward=depth * layer.backward,
        ready=[end * layer.backward for end in ends],
        costs=[ring_seconds(n * num_bytes, cluster) for n in lengths],
    )
    computing = depth * (layer.forward + layer.backward)
    return Estimate(
        computing=computing,
        sending=fsum(_sending(n * num_bytes, cluster) for n in lengths),
        waiting=step - computing,
        parameter_bytes=depth * num_bytes,
        activation_bytes=(depth + 1) * layer.size * b / k * w,
        seconds=step,
    )


def _layer(
    *, b: int, w: int, depth: int, cluster: Cluster, dtype: str
) -> Estimate:
    k = cluster.num_devices
    size = SIZES[dtype]
    activation = size * b * w
    # A pair: the first layer is split by its outputs, the second by inputs.
    pair = (
        Dense(cluster, rows=b, inputs=w, outputs=w / k, dtype=dtype),
        Dense(cluster, rows=b, inputs=w / k, outputs=w, dtype=dtype),
    )
    computing = depth / 2 * fsum(x.forward + x.backward for x in pair)
    allreduces = depth - 1  # the first layer's input needs no gradient
    # What is added up is copied first, and not divided.
    each = pair[0].moved(2 * b * w) + ring_seconds(activation, cluster, "sum")
    return Estimate(
        computing=computing,
        sending=allreduces * _sending(activation, cluster),
        waiting=allreduces * each,
        parameter_bytes=size * depth * (w * w + w) / k,
        activation_bytes=(depth / 2 * (1 + 1 / k) + 1) * activation,
        seconds=computing + allreduces * each,
    )


def _network(
    *, b: int, w: int, depth: int, cluster: Cluster, dtype: str
) -> Estimate:
    k = cluster.num_devices
    m = MICRO_BATCHES * k
    stage = depth / k
    size = SIZES[dtype]
    layer = Dense(cluster, rows=b / m, inputs=w, outputs=w, dtype=dtype)
    forward = stage * layer.forward
    backward = stage * layer.backward
    hop = copy_seconds(cluster.link, size * b / m * w)
    # A stage sends on to the next, and back to the one before.
    messages = min(k - 1, 2)
    if not cluster.link.peer_to_peer:
        messages = 2 * (k - 1)  # those of all borders, on one path
    sending = m * messages * hop
    computed = makespan(
        "1f1b",
        num_devices=k,
        num_micro_batches=m,
        forward=forward,
        backward=backward,
    )
    waiting = hops_waited("1f1b", k, m) * hop
    seconds = max(computed + waiting, sending)
    return Estimate(
        computing=m * (forward + backward),
        sending=sending,
        waiting=seconds - computed,
        parameter_bytes=size * stage * (w * w + w),
        activation_bytes=k * (stage + 1) * size * b / m * w,
        seconds=seconds,
    )


def _sending(num_bytes: float, cluster: Cluster) -> float:
    """Return what a ring's messages take on a port, or on a shared path."""
    k = cluster.num_devices
    sharing = 1 if cluster.link.peer_to_peer else k
    return 2 * (k - 1) * sharing * copy_seconds(cluster.link, num_bytes / k)


# The time of the products is 6w²bL / (kR), of what is sent 4β times the
# numbers above. Where both are equal, for k = 4, L = 8 and Rβ = 100:
#
#                             ports                  one path
#     data      b/k =  4/3 (k - 1)/k Rβ  100    4/3 (k - 1) Rβ      400
#     network     w =  4/3 k/L Rβ         67    4/3 k(k - 1)/L Rβ   200
#     layer       w =  4/3 (k - 1) Rβ    350    4/3 k(k - 1) Rβ    1400
#                          · (L - 1)/L               · (L - 1)/L
#
# With two stages, a port sends half as much: w = 2/3 k/L Rβ.


def boundary(
    way: str,
    num_devices: int,
    *,
    depth: int,
    ratio: float,
    shared: bool = False,
) -> float:
    """Return the size beyond which computing takes longer than sending.

    Latencies are left out. Messages that take less time than the arithmetic
    are not hidden by that: in 1F1B they cost time at every width
    (``dpkit.schedules.hops_waited``).

    Args:
        way: A name in ``WAYS``.
        num_devices: How many devices the step is split over.
        depth: The number of layers.
        ratio: The flops that a device computes while a byte passes: its flops
            a second by the link's bytes a second.
        shared: Whether all copies pass over one path. If not, each device has
            a port, which sends while it receives.

    Returns:
        For "data" the rows of a device, for the others the width of the
        layers.

    Example:
        >>> [round(boundary(way, 4, depth=8, ratio=100)) for way in WAYS]
        [100, 67, 350]
    """
    check_known("way", way, WAYS)
    k = num_devices
    if way == "data":
        return 4 / 3 * (k - 1) * ratio / (1 if shared else k)
    if way == "layer":
        sharing = k if shared else 1
        return 4 / 3 * (k - 1) * sharing * (depth - 1) / depth * ratio
    # What the busiest port sends of a micro-batch, or the path carries.
    messages = 2 * (k - 1) if shared else min(k - 1, 2)
    return 2 / 3 * messages * k / depth * ratio
