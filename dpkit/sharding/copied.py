"""Data parallelism in flat tensors: each device keeps a copy of everything.

This is what ZeRO begins with, as stage 0: all devices compute the same step.
"""

from dpkit.collectives import allreduce
from dpkit.sharding.passes import Passes


class Copied(Passes):
    """Whole parameters, gradients and state on each device.

    Arguments are those of :class:`Passes`.

    Example:
        >>> from dpkit.sharding import Copied
        >>> adam = lambda shards: torch.optim.Adam(shards, lr=0.1)
        >>> parallel = Copied([nn.Linear(3, 4)], dpkit.devices(2, "sim"), adam)
        >>> parallel.blocks[0].shards[1].shape
        torch.Size([16])
    """

    def _prepare(self) -> None:
        for block in self.blocks:
            block.shards = list(block.wholes)

    def step(self) -> None:
        """Take a step by the mean of the gradients of all devices."""
        for block in self.blocks:
            whole = block.take_gradients()
            allreduce(whole, "mean", self.algorithm)
            for shard, gradient in zip(block.shards, whole):
                shard.grad = gradient
        super().step()
