"""DistributedDataParallel by hand: a process for each replica.

Each rank runs its own forward and backward. What they exchange, and when::

    forward    buffers of rank 0 ─▶ all
    backward   … ──g5──g4──g3──g2──g1──g0── end
                         └ mean of bucket 0 ┘ └ wait
                                    └ mean of bucket 1 ┘
    update     every rank alike, with nothing to exchange

The parameters start as rank 0's, and take equal steps from there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dpkit.buckets import Bucket, Buckets
from dpkit.data_parallel.agreement import (
    check_alike,
    check_module,
    copy_from_rank_0,
)


class DistributedDataParallel(nn.Module):
    """Train a module on all ranks of the process group, each on its batches.

    It is called as the module is. After backward each gradient is the mean
    over ranks, of shards of any size: for the gradient of the mean over all
    examples, give each rank as many. A parameter that a rank's backward does
    not reach counts as zeros there; one that no rank's reaches has no
    gradient. All ranks have to run backward equally often, each time from
    something that depends on a parameter.

    Gradients are views of ``buckets``, which travel while backward goes on.
    The last wrapper of a module trains it. Wrap again when parameters are
    replaced, or begin to require a gradient.

    Args:
        module: Lies on this rank's device, which is not a simulated one. Its
            parameters and buffers become those of rank 0; it has to be the
            same on all ranks.
        bucket_megabytes: The size of a bucket in MiB (2^20 bytes), as
            PyTorch's ``bucket_cap_mb``. A bucket is closed when it has that
            or above, the first when it has one MiB.
        broadcast_buffers: Whether buffers, such as the running statistics of
            batch norm, become those of rank 0 before a forward in training
            mode: before the first one, if several precede a backward.

    Raises:
        RuntimeError: there is no process group, or, in forward, a parameter
            was replaced or began to require a gradient after the wrapping.
        ValueError: no parameter requires a gradient, one has no shape yet,
            the module lies on several devices or a simulated one, or ranks
            have other modules.

    Example:
        In each of the processes that :func:`dpkit.launch` or ``torchrun``
        starts; here there is one:

        >>> import torch.distributed as dist
        >>> dist.init_process_group(
        ...     "gloo", store=dist.HashStore(), rank=0, world_size=1
        ... )
        >>> net = dpkit.DistributedDataParallel(nn.Linear(3, 2))
        >>> net(torch.ones(5, 3)).sum().backward()
        >>> net.module.bias.grad
        tensor([5., 5.])
        >>> dist.destroy_process_group()
    """

    buckets: Buckets

    def __init__(
        self,
        module: nn.Module,
        bucket_megabytes: float = 25.0,
        broadcast_buffers: bool = True,
    ) -> None:
        super().__init__()
        check_module(module)
        self.module = module
        self.bucket_megabytes = bucket_megabytes
        self.broadcast_buffers = broadcast_buffers
        self._connect()
        check_alike(
            module,
            bucket_megabytes=bucket_megabytes,
            broadcast_buffers=broadcast_buffers,
        )
        copy_from_rank_0([*module.parameters(), *module.buffers()])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns."""
        trains = self.training and torch.is_grad_enabled()
        if trains and self.buckets.enabled:
            self._check_params()
            # Only at the first of several forwards before a backward.
            if self.broadcast_buffers and not self._means.are_awaited:
                copy_from_rank_0(list(self.module.buffers()))
            self._means.are_awaited = True
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Send nothing in a block: this rank's gradients add up.

        The next backward after it takes the mean of the sums over ranks.
        Every rank has to do the same.
        """
        before = self.buckets.enabled
        self.buckets.enabled = False
        try:
            yield
        finally:
            self.buckets.enabled = before

    def _check_params(self) -> None:
        """Raise an error unless the buckets have all trained parameters."""
        for name, p in self.module.named_parameters():
            if p.requires_grad and id(p) not in self._known:
                raise RuntimeError(
                    "a parameter was replaced, or began to require a "
                    "gradient, after the module was wrapped (parameter: "
                    f"{name}, shape: {tuple(p.shape)}); wrap the module again"
                )

    def _connect(self) -> None:
        """Fill buckets in backward, and send them."""
        self._means = Means()
        self.buckets = Buckets(
            [p for p in self.module.parameters() if p.requires_grad],
            self.bucket_megabytes,
            on_start=self._means.start,
            on_full=self._means.send,
            on_end=self._means.finish,
        )
        self._known = {id(p) for p in self.buckets.params}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only these parameters and this process can use."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("buckets", "_means", "_known")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._connect()


class Means:
    """Makes each bucket the mean over ranks, while backward goes on."""

    def __init__(self) -> None:
        self.are_awaited = False  # whether backward is to come after a forward
        self._works: list[dist.Work] = []
        self._have_order = False

    def start(self, buckets: Buckets) -> None:
        """Wait for what was sent by a backward that an exception ended."""
        self._wait()

    def send(self, bucket: Bucket) -> None:
        """Begin to reduce a bucket; return before it is done."""
        # Divided first: in half precision the sum could overflow.
        bucket.flat /= dist.get_world_size()
        work = dist.all_reduce(bucket.flat, async_op=True)
        assert work is not None
        self._works.append(work)

    def finish(self, buckets: Buckets) -> None:
        """Wait for all buckets; after the first round, put them in order."""
        self._wait()
        buckets.settle()
        if not self._have_order:
            # Ranks have to send equal buckets, so rank 0 decides.
            device = buckets.params[0].device
            order = torch.tensor(buckets.order, device=device)
            dist.broadcast(order, src=0)
            buckets.rebuild(order.tolist())
            self._have_order = True
        self.are_awaited = False

    def _wait(self) -> None:
        works = self._works
        self._works = []  # also if a wait ends in an exception
        for work in works:
            work.wait()
