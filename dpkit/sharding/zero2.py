"""ZeRO, stage 2: a device keeps the gradients of its shard alone.

As soon as backward has made the gradients of a block, they are reduced, and
the whole of them goes::

    backward    block 2   block 1   block 0
    whole       [g g g]   [g g g]   [g g g]     one block at a time
    kept        [G]       [G][G]    [G][G][G]   of each block, a part
"""

from dpkit.collectives import allgather, reduce_scatter
from dpkit.sharding.passes import Passes


class Zero2(Passes):
    """Whole parameters on each device, gradients and state in shards.

    Arguments are those of :class:`Passes`.

    Example:
        >>> from dpkit.sharding import Zero2
        >>> blocks = nn.Linear(3, 4), nn.Linear(4, 1)
        >>> adam = lambda shards: torch.optim.Adam(shards, lr=0.1)
        >>> parallel = Zero2(blocks, dpkit.devices(2, "sim"), adam)
        >>> X, y = torch.ones(5, 3), torch.zeros(5, 1)
        >>> loss = parallel.forward_backward(X, y, nn.MSELoss())
        >>> parallel.blocks[0].shards[1].grad.untyped_storage().nbytes()
        32
    """

    def begin(self) -> None:
        """Forget what backward of a batch that failed has left."""
        for block in self.blocks:
            block.forget_gradients()

    def after_backward(self, place: int, following: int | None) -> None:
        """Reduce the gradients of a block, and keep a part on each device."""
        block = self.blocks[place]
        whole = block.take_gradients()
        parts = reduce_scatter(whole, "mean", self.algorithm)
        block.add_gradients(parts)  # copies: a view would keep the whole

    def step(self) -> None:
        """Take a step by the gradients that are there."""
        super().step()
        for block in self.blocks:
            allgather(block.wholes, self.algorithm)
