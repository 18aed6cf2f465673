"""Steps of data parallelism on simulated devices, by two engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dpkit import sim
from dpkit.data_parallel import BucketedDataParallel, DataParallel
from dpkit.lab.common.loop import take_step
from dpkit.lab.common.resnet import resnet18
from dpkit.machine import Timer, devices
from dpkit.theory.timeline.timeline import Timeline

TakeStep = Callable[[], object]


@dataclass
class Step:
    """A training step on simulated devices.

    Attributes:
        timeline: What happened in it.
        seconds: Simulated seconds that it took.
    """

    timeline: Timeline
    seconds: float


def wrapper_step(num_devices: int, rows: int, **machine: Any) -> Step:
    """Time a step of :class:`dpkit.DataParallel`: one process drives all.

    The network is ResNet-18, and images begin in the memory of the host.

    Args:
        num_devices: k devices.
        rows: Images in the whole batch.
        machine: What :func:`dpkit.sim.machine` changes.

    Example:
        >>> from dpkit.lab.data_parallelism_concise.runs import wrapper_step
        >>> step = wrapper_step(2, rows=64, link="pcie3")
        >>> step.timeline.label
        'simulated (v100, pcie3)'
    """
    return _step(_wrapped, "one", num_devices, rows, machine)


def processes_step(num_devices: int, rows: int, **machine: Any) -> Step:
    """Time a step in which a process drives each device.

    Gradients are reduced in buckets beside backward, as
    ``DistributedDataParallel`` does it.

    Args:
        num_devices: k devices.
        rows: Images in the whole batch; each process has its shard.
        machine: What :func:`dpkit.sim.machine` changes.

    Example:
        >>> from dpkit.lab.data_parallelism_concise.runs import (
        ...     processes_step, wrapper_step)
        >>> step = processes_step(2, rows=64, link="pcie3")
        >>> step.seconds < wrapper_step(2, rows=64, link="pcie3").seconds
        True
    """
    return _step(_in_processes, "per_device", num_devices, rows, machine)


def _step(
    prepare: Callable[[Sequence[torch.device], Tensor, Tensor], TakeStep],
    hosts: str,
    num_devices: int,
    rows: int,
    machine: dict[str, Any],
) -> Step:
    """Time a step, once all that it needs is in its place."""
    X = torch.empty(rows, 1, 28, 28)
    y = torch.zeros(rows, dtype=torch.long)
    with sim.machine(**{"backing": "meta", "hosts": hosts, **machine}):
        ranks = devices(num_devices, "sim")
        take_step = prepare(ranks, X, y)
        with Timer(ranks) as timer, sim.trace() as timeline:
            take_step()
        return Step(timeline, timer.seconds)


def _wrapped(ranks: Sequence[torch.device], X: Tensor, y: Tensor) -> TakeStep:
    net = DataParallel(resnet18().to(ranks[0]), ranks)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return lambda: take_step(net, optimizer, X, y)


def _in_processes(
    ranks: Sequence[torch.device], X: Tensor, y: Tensor
) -> TakeStep:
    parallel = BucketedDataParallel(resnet18(), ranks)
    optimizers = [
        torch.optim.SGD(replica.parameters(), lr=0.1)
        for replica in parallel.replicas
    ]

    def take_step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel.forward_backward(X, y, F.cross_entropy)
        for optimizer in optimizers:
            optimizer.step()

    return take_step


def launching_before_backward(timeline: Timeline) -> float:
    """Return the seconds that Python launches until the loss is there.

    Args:
        timeline: Of a step on one device.

    Example:
        >>> from dpkit.theory.timeline.timeline import Span
        >>> forward = Span("host", "python", "mm", "launch", 0.0, 1.0)
        >>> backward = Span("host", "backward", "mm", "launch", 1.0, 3.0)
        >>> update = Span("host", "python", "add", "launch", 3.0, 4.0)
        >>> launching_before_backward(Timeline([forward, backward, update]))
        1.0
    """
    launches = [s for s in timeline.spans if s.kind == "launch"]
    begun = min(s.start for s in launches if s.stream != "python")
    return sum(s.end - s.start for s in launches if s.end <= begun)
