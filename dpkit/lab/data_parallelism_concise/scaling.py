"""Steps of data parallelism by two engines, and how their time scales.

In a step, ``rows`` are the images of the whole batch, and ``machine`` is what
:func:`dpkit.sim.machine` changes. Of several steps the seconds are given by
the number of devices, k.
"""

from collections.abc import Callable, Mapping, Sequence
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
    """A training step on simulated devices."""

    timeline: Timeline
    seconds: float  # simulated


def wrapper_step(num_devices: int, rows: int, **machine: Any) -> Step:
    """Time a step of :class:`dpkit.DataParallel`: one process drives all.

    The network is ResNet-18, and images begin in the memory of the host.
    """
    return _step(_wrapped, "one", num_devices, rows, machine)


def processes_step(num_devices: int, rows: int, **machine: Any) -> Step:
    """Time a step in which a process drives each device.

    Gradients are reduced in buckets beside backward, as
    ``DistributedDataParallel`` does it.
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

    Backward launches from another thread; what follows it is the update.
    """
    launches = [s for s in timeline.spans if s.kind == "launch"]
    begun = min(s.start for s in launches if s.stream != "python")
    return sum(s.end - s.start for s in launches if s.end <= begun)


# How the time of a step depends on the number of devices: two questions.
#
# weak scaling      each device has as many rows as one had alone; the batch
#                   grows with the devices
# strong scaling    the batch stays, and each device has a part of it
#
# Both compare what is done in a second with what one device does in it. The
# numbers of the two are not comparable, because the work differs.


def weak_speedups(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return how many times the rows of one device are done in a second.

    Example:
        >>> weak_speedups({1: 4.0, 2: 5.0, 4: 8.0})
        {1: 1.0, 2: 1.6, 4: 2.0}
    """
    return {k: k * seconds[1] / found for k, found in seconds.items()}


def strong_speedups(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return how many times faster than on one device a step is.

    Example:
        >>> strong_speedups({1: 4.0, 2: 2.5, 4: 2.0})
        {1: 1.0, 2: 1.6, 4: 2.0}
    """
    return {k: seconds[1] / found for k, found in seconds.items()}


def unsplit_seconds(one: float, found: float, k: int) -> float:
    """Return the seconds that do not split, from the times of two steps.

    One device takes unsplit + split, and k take unsplit + split / k.

    Example:
        >>> unsplit_seconds(one=4.0, found=2.5, k=2)
        1.0
    """
    return (k * found - one) / (k - 1)


def amdahl_seconds(one: float, unsplit: float, k: int) -> float:
    """Return the seconds of a step on k devices, if only the rest splits.

    Example:
        >>> amdahl_seconds(one=4.0, unsplit=1.0, k=3)
        2.0
    """
    return unsplit + (one - unsplit) / k
