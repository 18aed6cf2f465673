"""Steps of data parallelism: when gradients are sent, and what that costs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbook.common.resnet import resnet18
from dpbook.formulas.overlap import bucket_ends, ring_seconds
from dpkit import Timer, devices, sim, synchronize
from dpkit.buckets import BYTES_PER_MEGABYTE, Bucket, assign
from dpkit.data_parallel import BucketedDataParallel
from dpkit.sim.clock import SECOND
from dpkit.sim.hardware import Cluster
from dpkit.sim.timeline import Timeline

ONE_EACH = 1e-9  # MiB: no two gradients fit
ALL_IN_ONE = inf


@dataclass
class SimulatedStep:
    """A training step on simulated devices; seconds are from its start."""

    timeline: Timeline
    seconds: float
    bucket_bytes: list[int]
    ready: list[float]  # when each bucket is full on the latest device
    backward_end: float  # when the last device has its gradients


def simulated_step(
    bucket_megabytes: float,
    overlap: bool = True,
    *,
    make: Callable[[], nn.Module] = resnet18,
    num_devices: int = 4,
    rows: int = 256,
    shape: Sequence[int] = (1, 28, 28),
    algorithm: str = "ring",
    sync: bool = True,
    **machine: Any,
) -> SimulatedStep:
    """Time a step of data parallelism in which each device has a process.

    Args:
        bucket_megabytes: The size of a bucket, in MiB.
        overlap: Whether buckets are reduced while backward goes on. If not,
            they are reduced after it.
        make: Returns the network; it is called once.
        num_devices: How many there are.
        rows: The images on each device.
        shape: That of an image, without the batch.
        algorithm: How buckets are reduced, as for :func:`dpkit.allreduce`.
        sync: Whether they are reduced at all. If not, nothing is sent.
        **machine: What :func:`dpkit.sim.machine` changes, by name.
    """
    with sim.machine(backing="meta", **{"hosts": "per_device", **machine}):
        ranks = devices(num_devices, "sim")
        # Its copies are made there, where there are no values to copy.
        where = ranks, bucket_megabytes, overlap, algorithm
        parallel = _Watched(make().to(ranks[0]), *where)
        X = torch.zeros(rows, *shape)
        y = torch.zeros(rows, dtype=torch.long)
        shards = [(X.to(device), y.to(device)) for device in ranks]
        synchronize(ranks)
        with sim.trace() as timeline, Timer(ranks) as timer:
            parallel.step(shards, sync)
        # Buckets of one rank become full in the order of their numbers.
        ready = parallel.marks()
        sizes = [b.flat.nbytes for b in parallel.buckets[0].buckets]
        end = max(ready, default=timer.seconds)
        return SimulatedStep(
            timeline=timeline,
            seconds=timer.seconds,
            bucket_bytes=sizes,
            ready=ready,
            backward_end=end,
        )


class _Watched(BucketedDataParallel):
    """Notes when each bucket is full."""

    def step(
        self, shards: Sequence[tuple[Tensor, Tensor]], sync: bool
    ) -> None:
        """Run forward and backward on shards that lie on the devices."""
        self.start = sim.now()
        self.ready: dict[int, list[Any]] = defaultdict(list)  # events
        for bucket in chain(*(buckets.buckets for buckets in self.buckets)):
            # As after a step: gradients are views of their buckets.
            for p, view in zip(bucket.params, bucket.gradients):
                p.grad = view
        losses = [
            F.cross_entropy(replica(X), y)
            for replica, (X, y) in zip(self.replicas, shards)
        ]
        with nullcontext() if sync else self.no_sync():
            self.backward(losses)

    def _note_full(self, rank: int, bucket: Bucket) -> None:
        device = self.devices[rank]
        stream = torch.get_device_module(device).current_stream(device)
        self.ready[bucket.index].append(stream.record_event())
        super()._note_full(rank, bucket)

    def marks(self) -> list[float]:
        """Return when each bucket was full on the latest device: seconds."""
        latest = (max(e.mark for e in x) for x in self.ready.values())
        return [mark / SECOND - self.start for mark in latest]


def wide() -> nn.Module:
    """Return six dense layers for images of 28×28: few operations to draw."""
    widths = [28 * 28, *[2048] * 5, 10]
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
    return nn.Sequential(nn.Flatten(), *layers)


def predicted_seconds(
    step: SimulatedStep, bucket_megabytes: float, cluster: Cluster
) -> float:
    """Predict the seconds of a step with buckets of another size.

    Args:
        step: A step with a bucket for each gradient.
        bucket_megabytes: The size of the buckets, in MiB.
        cluster: The devices, their hosts and links.
    """
    sizes = step.bucket_bytes
    grads = [torch.empty(n, dtype=torch.int8, device="meta") for n in sizes]
    room = bucket_megabytes * BYTES_PER_MEGABYTE
    first = inf if room == inf else min(room, BYTES_PER_MEGABYTE)
    groups = assign(grads, room, first)
    costs = [ring_seconds(sum(sizes[i] for i in g), cluster) for g in groups]
    ready = [step.ready[max(group)] for group in groups]
    return max(step.backward_end, bucket_ends(ready, costs)[-1])
