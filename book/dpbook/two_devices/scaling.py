"""Steps of data parallelism by two engines.

``make`` returns the network, ``rows`` are the images of the whole batch, of
``shape``, and ``machine`` is what :func:`dpkit.sim.machine` changes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.loop import take_step
from dpbook.common.resnet import resnet18
from dpkit import DataParallel, Timer, devices, sim
from dpkit.data_parallel import BucketedDataParallel
from dpkit.sim.timeline import Timeline


class Timed(NamedTuple):
    """A training step on simulated devices."""

    timeline: Timeline
    seconds: float  # simulated


def wrapper_step(
    num_devices: int,
    rows: int,
    make: Callable[[], nn.Module] = resnet18,
    shape: Sequence[int] = (1, 28, 28),
    **machine: Any,
) -> Timed:
    """Time a step of :class:`dpkit.DataParallel`: one process drives all.

    The images begin in pinned memory of the host.

    Args:
        num_devices: How many devices share the batch.
        rows: The images of the whole batch.
        make: Returns the network; it is called once.
        shape: That of an image, without the batch.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    with sim.machine(**{"backing": "meta", "hosts": "one", **machine}):
        ranks = devices(num_devices, "sim")
        X, y = _batch(rows, shape)
        net = DataParallel(make().to(ranks[0]), ranks)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        return _timed(ranks, lambda: take_step(net, optimizer, X, y))


def processes_step(
    num_devices: int,
    rows: int,
    make: Callable[[], nn.Module] = resnet18,
    shape: Sequence[int] = (1, 28, 28),
    algorithm: str = "ring",
    **machine: Any,
) -> Timed:
    """Time a step in which a process drives each device, as in DDP.

    The images begin in pinned memory of the host.

    Args:
        num_devices: How many devices share the batch.
        rows: The images of the whole batch.
        make: Returns the network; it is called once.
        shape: That of an image, without the batch.
        algorithm: How gradients are added up, as for :func:`dpkit.allreduce`.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    with sim.machine(**{"backing": "meta", "hosts": "per_device", **machine}):
        ranks = devices(num_devices, "sim")
        X, y = _batch(rows, shape)
        parallel = BucketedDataParallel(make(), ranks, algorithm=algorithm)
        optimizers = [
            torch.optim.SGD(replica.parameters(), lr=0.1)
            for replica in parallel.replicas
        ]

        def step() -> None:
            for optimizer in optimizers:
                optimizer.zero_grad()
            parallel.forward_backward(X, y, F.cross_entropy)
            for optimizer in optimizers:
                optimizer.step()

        return _timed(ranks, step)


def _batch(rows: int, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return images and labels in pinned memory, as a data loader does."""
    X = torch.empty(rows, *shape)
    y = torch.zeros(rows, dtype=torch.long)
    return X.pin_memory(), y.pin_memory()


def _timed(ranks: Sequence[torch.device], step: Callable[[], object]) -> Timed:
    with Timer(ranks) as timer, sim.trace() as timeline:
        step()
    return Timed(timeline, timer.seconds)


def launching_before_backward(timeline: Timeline) -> float:
    """Return the seconds that Python launches until the loss is there.

    Backward launches from another thread; what follows it is the update.
    """
    launches = [s for s in timeline.spans if s.kind == "launch"]
    begun = min(s.start for s in launches if s.stream != "python")
    return sum(s.end - s.start for s in launches if s.end <= begun)
