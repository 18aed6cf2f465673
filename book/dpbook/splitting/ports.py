"""How long a step sends, how long it multiplies, and what messages add to it.

A threshold of ``formulas.splits.boundary`` is the size at which the first two
are equal. Here they are added up from what simulated devices did.
"""

from collections import defaultdict
from typing import Any

from dpbook.formulas.splits import MICRO_BATCHES, boundary
from dpbook.network_partitioning.runs import pipeline_step
from dpbook.splitting.three_ways import Way, traced
from dpkit.sim.hardware import (
    Cluster,
    Link,
    achieved_flops_per_second,
    cluster,
)
from dpkit.sim.timeline import Timeline


def port_seconds(timeline: Timeline, shared: bool = False) -> float:
    """Return how long the busiest port sends; or a path that all share.

    A copy is counted where it leaves. A port that also receives meanwhile
    counts once.
    """
    sending: dict[str, float] = defaultdict(float)
    for span in timeline.spans:
        if span.kind == "copy" and span.name.startswith("copy to"):
            port = "path" if shared else span.device
            sending[port] += span.end - span.start
    return max(sending.values())


def product_seconds(timeline: Timeline) -> float:
    """Return how long the device that has most products multiplies."""
    products: dict[str, float] = defaultdict(float)
    for span in timeline.spans:
        if span.kind == "compute" and span.name in ("addmm", "mm"):
            products[span.device] += span.end - span.start
    return max(products.values())


def machine_balance(machine: Cluster, dtype: str = "float32") -> float:
    """Return the operations that a device does while a byte passes its link.

    Example:
        >>> round(machine_balance(cluster(4, "v100", "nvlink2")))
        99
    """
    rate = machine.link.bytes_per_second * machine.link.achieved
    return achieved_flops_per_second(machine.accelerator, dtype) / rate


def step_at_boundary(
    name: str, way: Way, num_devices: int, *, depth: int, link: str
) -> Timeline:
    """Trace a step of V100s at the threshold of a way, as near as it goes.

    The other size is so large that latencies count little: 4096 values in and
    out of each layer, or 65,536 rows.

    Args:
        name: A name in ``dpbook.formulas.splits.WAYS``.
        way: The function of it in ``three_ways``.
        num_devices: How many there are.
        depth: The number of layers.
        link: A preset.
    """
    k = num_devices
    machine = cluster(num_devices, "v100", link)
    shared = not machine.link.peer_to_peer
    size = boundary(
        name,
        num_devices=k,
        depth=depth,
        ratio=machine_balance(machine),
        shared=shared,
    )
    rows = round(k * size)
    width = 4096
    if name != "data":
        rows = 65_536
        width = k * round(size / k)
    room: dict[str, Any] = {"link": link, "memory_bytes": 10**16}
    return traced(
        way, num_devices=k, rows=rows, width=width, depth=depth, **room
    )


def cost_of_messages(
    schedule: str, num_devices: int, width: int, link: str
) -> float:
    """Return what messages add to a pipeline's step, by its products' time.

    It is simulated twice, over the link and over one that takes no time. There
    are 4 micro-batches a device, and 65,536 rows.

    Args:
        schedule: As for :class:`dpkit.Pipeline`.
        num_devices: How many there are, with a stage on each.
        width: The values that go into each layer and come out of it.
        link: A preset.

    Returns:
        Seconds by seconds: 0.1 if the messages add a tenth of what the
        products take.
    """
    free = Link(
        "free",
        bytes_per_second=1e15,
        achieved=1,
        latency_seconds=0,
        peer_to_peer=True,
    )
    room: dict[str, Any] = {"hosts": "per_device", "memory_bytes": 10**16}
    m = MICRO_BATCHES * num_devices
    room |= {"rows": 65_536, "width": width}
    step, without = (
        pipeline_step(num_devices, schedule, m, link=each, **room)
        for each in (link, free)
    )
    more = step.makespan - without.makespan
    return more / product_seconds(without)
