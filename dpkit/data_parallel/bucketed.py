"""The same buckets in one process, which drives all devices.

Each device has a replica and runs its own backward. A bucket that is full on
all of them is reduced, on side streams::

    device 0, backward    g5  g4 | g3  g2 | g1  g0
    device 1, backward      g5  g4 | g3  g2 | g1  g0
    both, in parallel              |=bucket 0=|=bucket 1=| …
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from dpkit.arguments import (
    Devices,
    check_rows,
    check_trained,
    device_list,
)
from dpkit.buckets import Bucket, Buckets
from dpkit.collectives import allreduce, planned_allreduce
from dpkit.losses import Loss, check_mean, check_one_number
from dpkit.placement import split_batch
from dpkit.streams import on_side_streams, record_event, wait_for_side_streams
from dpkit.units import check_flag


class BucketedDataParallel:
    """Train replicas of a module, reducing gradients in buckets.

    The module stays as it is. Its copy ``replicas[r]`` lies on
    ``devices[r]``. After a step every replica has the gradient of the whole
    batch, as views of its ``buckets``; buffers stay each replica's own. An
    optimizer of all their parameters then takes the same step everywhere.

    Args:
        module: Is copied to each device, and lies on any.
        devices: k devices, one for each replica.
        bucket_megabytes: The size of a bucket in MiB (2^20 bytes). A bucket
            is closed when it has that or above, the first when it has one
            MiB. ``float("inf")`` gives one bucket for all.
        overlap: Whether a bucket is reduced while backward goes on; if not,
            all are reduced when it has ended.
        algorithm: That of the allreduces, as for :func:`dpkit.allreduce`.

    Raises:
        ValueError: no parameter requires a gradient, there is no device, or
            a bucket has room for nothing.

    Example:
        >>> from dpkit.data_parallel import BucketedDataParallel
        >>> net = nn.Linear(3, 1)
        >>> parallel = BucketedDataParallel(net, dpkit.devices(2, "sim"))
        >>> X, y = torch.ones(5, 3), torch.zeros(5, 1)
        >>> loss = parallel.forward_backward(X, y, nn.MSELoss())
        >>> parallel.replicas[1].weight.grad.shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        module: nn.Module,
        devices: Devices,
        bucket_megabytes: float = 25.0,
        overlap: bool = True,
        algorithm: str = "ring",
    ) -> None:
        devices = device_list(devices, least=1)
        check_trained(module)
        planned_allreduce(algorithm, len(devices))
        check_flag("overlap", overlap)
        self.overlap = overlap
        self.algorithm = algorithm
        self.replicas = [copy.deepcopy(module).to(d) for d in devices]
        self.devices = [next(r.parameters()).device for r in self.replicas]
        # self._full[1] = {3: …, 0: …}: bucket 1 was full on rank 3 first, then
        # on rank 0; with each, the event at the end of what filled it.
        self._full: dict[int, dict[int, tuple[Bucket, Any]]] = {}
        self._lock = Lock()  # on GPUs, each device's backward has a thread
        self.buckets = [
            Buckets(
                [p for p in replica.parameters() if p.requires_grad],
                bucket_megabytes,
                first_megabytes=inf if bucket_megabytes == inf else 1.0,
                on_full=partial(self._note_full, rank),
            )
            for rank, replica in enumerate(self.replicas)
        ]

    def forward_backward(self, X: Tensor, y: Tensor, loss: Loss) -> Tensor:
        """Compute the loss of a batch, and its gradients on every replica.

        They are added to those that are there. ``X`` has the shape (b, …),
        with an example or more for each device; ``loss(outputs, y)`` is the
        mean over examples. Return the mean loss over the batch, of no
        dimensions, on the first device and detached.
        """
        check_rows(X)
        check_mean(loss)
        k = len(self.devices)
        if len(X) < k:
            raise ValueError(
                "a device would have nothing to do (examples: "
                f"{len(X)}, devices: {k})"
            )
        losses = []
        for replica, X_shard, y_shard in zip(
            self.replicas, *split_batch(X, y, self.devices)
        ):
            found = loss(replica(X_shard), y_shard)
            check_one_number(found)
            # The mean over ranks of these is the mean over the batch: of 5
            # examples on 2 devices, 3 count 2 · 3/5 and 2 count 2 · 2/5.
            losses.append(found * (k * len(X_shard) / len(X)))
        self.backward(losses)
        return torch.stack(
            [x.detach().to(self.devices[0]) for x in losses]
        ).mean()

    def backward(self, losses: Sequence[Tensor]) -> None:
        """Leave the gradients of the mean of losses, one of each replica."""
        self._full.clear()
        try:
            # One call: on GPUs, each device's backward has its own thread.
            torch.autograd.backward(losses)
            if not self.overlap:
                for index in sorted(self._full):
                    self._reduce(index)
        finally:
            # After an exception too: what is on its way uses the buckets.
            for device in self.devices:
                wait_for_side_streams(device)
        for buckets in self.buckets:
            if buckets.enabled:
                buckets.settle()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Reduce nothing in a block: gradients add up for the next step."""
        for buckets in self.buckets:
            buckets.enabled = False
        try:
            yield
        finally:
            for buckets in self.buckets:
                buckets.enabled = True

    def _note_full(self, rank: int, bucket: Bucket) -> None:
        with self._lock:
            full = self._full.setdefault(bucket.index, {})
            full[rank] = bucket, record_event(self.devices[rank])
            if self.overlap and len(full) == len(self.devices):
                self._reduce(bucket.index)

    def _reduce(self, index: int) -> None:
        """Make all replicas' buckets of this number their mean."""
        full = self._full[index]  # in the order of time
        flats = [full[rank][0].flat for rank in sorted(full)]
        events = {}
        if self.overlap:
            # Where ranks share a device, the latest of them counts.
            events = {self.devices[rank]: full[rank][1] for rank in full}
        with on_side_streams(events):
            allreduce(flats, "mean", self.algorithm)
