"""Run an allreduce to see what it sends, and what it takes."""

from typing import Any

import torch

from dpkit import collectives, sim
from dpkit.lab.common.traffic import Traffic
from dpkit.machine import devices, synchronize
from dpkit.theory.timeline.timeline import Timeline

VIEWS = {"view", "slice"}  # of the host alone: no device has a part in them


def sent_bytes(
    algorithm: str, num_devices: int, num_elements: int
) -> list[int]:
    """Run an allreduce on simulated devices; return what each sends.

    Example:
        >>> sent_bytes("ring", 3, 5)  # 2 · 5 numbers, less two parts
        [24, 28, 28]
    """
    ranks = devices(num_devices, kind="sim")
    tensors = [torch.ones(num_elements, device=d) for d in ranks]
    with Traffic() as traffic:
        collectives.allreduce(tensors, "sum", algorithm)
    return [traffic.sent[device] for device in ranks]


def timed(
    algorithm: str, num_devices: int, num_bytes: int, **machine: Any
) -> Timeline:
    """Time an allreduce of float32 on a simulated machine, without numbers."""
    with sim.machine(backing="meta", **machine):
        ranks = devices(num_devices, kind="sim")
        tensors = [torch.empty(num_bytes // 4, device=d) for d in ranks]
        synchronize(ranks)
        with sim.trace() as timeline:
            collectives.allreduce(tensors, "sum", algorithm)
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
