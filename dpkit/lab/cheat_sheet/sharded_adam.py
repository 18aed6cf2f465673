"""Adam on several devices, with what each keeps in shards: ZeRO.

What a device keeps of each parameter, and what the stages put in shards::

    stage                            0      1      2      3
    weights, 16 bits                 all    all    all    shard
    gradients, 16 bits               all    all    shard  shard
    weights and averages, 32 bits    all    shard  shard  shard
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dpkit.collectives import allgather, allreduce, reduce_scatter

Gradient = Callable[[Tensor], Tensor]


class ShardedAdam:
    """Train a flat tensor with Adam, in mixed precision, on all devices.

    ``values``, shape (n,), are the first weights, and ``dtype`` is that of
    weights and gradients; Adam works in float32. ``weights`` and, after a
    step, ``gradients`` are what each device has of them.

    Raises:
        ValueError: If the devices do not divide n, or no such stage exists.

    Example:
        >>> devices = dpkit.devices(2, kind="sim")
        >>> adam = ShardedAdam(torch.ones(4), devices, stage=3, lr=0.5)
        >>> adam.step([torch.ones_like, torch.ones_like])
        >>> adam.weights[1]
        tensor([0.5000, 0.5000], device='sim:1', dtype=torch.bfloat16)

    Source:
        S. Rajbhandari et al., ZeRO: memory optimizations toward training
        trillion parameter models, 2019, arXiv:1910.02054.
    """

    def __init__(
        self,
        values: Tensor,
        devices: Sequence[torch.device],
        stage: int,
        lr: float = 1e-3,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        k = len(devices)
        if len(values) % k or stage not in range(4):
            raise ValueError(
                f"equal shards and a stage from 0 to 3 are needed (values: "
                f"{len(values)}, devices: {k}, stage: {stage})"
            )
        self.stage, self.devices = stage, list(devices)
        shards = values.tensor_split(k)
        self.weights = [
            (shards[r] if stage == 3 else values).to(d, dtype, copy=True)
            for r, d in enumerate(devices)
        ]
        self.gradients: list[Tensor] = []
        self._masters = [
            (shards[r] if stage else values).to(d, torch.float32, copy=True)
            for r, d in enumerate(devices)
        ]
        self._adam = torch.optim.Adam(self._masters, lr)

    def step(self, gradients: Sequence[Gradient]) -> None:
        """Take a step by the mean of what these return at all weights."""
        self.gradients = []  # those of the step before
        if self.stage == 3:
            self.whole()  # for the forward pass, after which they go
        whole = [f(w) for f, w in zip(gradients, self.whole(), strict=True)]
        self.gradients = self._reduced(whole)
        for master, part in zip(self._masters, self._mine(self.gradients)):
            master.grad = part.float()
        self._adam.step()
        self._adam.zero_grad()
        for mine, master in zip(self._mine(self.weights), self._masters):
            mine.copy_(master)
        if self.stage in (1, 2):
            allgather(self.weights)

    def whole(self) -> list[Tensor]:
        """Return all weights on each device, gathered where in shards."""
        if self.stage < 3:
            return self.weights
        k = len(self.devices)
        found = [torch.cat([shard] * k) for shard in self.weights]
        allgather(found)
        return found

    def _reduced(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return what each device keeps of the mean."""
        if self.stage == 0:
            allreduce(gradients, op="mean", algorithm="ring")
            return gradients
        shards = reduce_scatter(gradients, op="mean")
        return gradients if self.stage == 1 else [s.clone() for s in shards]

    def _mine(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the part that each device updates, of wholes or shards."""
        # 4 values on 2 devices: rank 1 updates [2:4] of a whole, and all of a
        # shard, which is those two.
        size, k = len(self._masters[0]), len(self.devices)
        return [
            tensor if len(tensor) == size else tensor.tensor_split(k)[rank]
            for rank, tensor in enumerate(tensors)
        ]
