"""Run an allreduce to see what it sends, and what it takes."""

from typing import Any

import torch

from dpkit import collectives, devices, sim, synchronize
from dpkit.sim.timeline import Timeline
from dpkit.traffic import Traffic

VIEWS = {"view", "slice"}  # of the host alone: no device has a part in them


def sent_bytes(
    algorithm: str, num_devices: int, num_elements: int
) -> list[int]:
    """Run an allreduce; return the bytes that each port sends.

    Example:
        >>> sent_bytes("ring", 3, 5)  # 2 · 5 values, less two parts
        [24, 28, 28]
    """
    ranks = devices(num_devices, kind="gpu")
    tensors = [torch.ones(num_elements, device=d) for d in ranks]
    with Traffic() as traffic:
        collectives.allreduce(tensors, op="sum", algorithm=algorithm)
    return [traffic.sent[device] for device in ranks]


def timed(
    algorithm: str, num_devices: int, num_bytes: int, **machine: Any
) -> Timeline:
    """Trace an allreduce of float32 on simulated devices, without values.

    Shapes and times are simulated, and nothing is added up
    (``backing="meta"``).

    Args:
        algorithm: As for :func:`dpkit.allreduce`, such as "ring".
        num_devices: How many ranks there are, one device for each.
        num_bytes: The size of the tensor on each rank. A value has 4 bytes,
            and a rest is dropped.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    with sim.machine(backing="meta", **machine):
        ranks = devices(num_devices, kind="sim")
        tensors = [torch.empty(num_bytes // 4, device=d) for d in ranks]
        synchronize(ranks)
        with sim.trace() as timeline:
            collectives.allreduce(tensors, op="sum", algorithm=algorithm)
            synchronize(ranks)
    return timeline


def num_launches(timeline: Timeline) -> int:
    """Return what the process of device 0 launched: operations and copies.

    Example:
        >>> run = timed("ring", 3, 12, hosts="per_device")
        >>> num_launches(run)  # 4 steps: 4 sends, 4 receives, 2 additions
        10
    """
    return sum(
        span.kind == "launch" and span.name not in VIEWS
        for span in timeline.spans
        if span.device == "host:0"
    )
