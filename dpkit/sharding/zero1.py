"""ZeRO, stage 1: each device updates a shard of the parameters.

Adam keeps two numbers for each parameter. Data parallelism has all devices
compute the same ones; here each has those of its shard::

    gradients      [g g g]  [g g g]      reduce-scatter    [G · ·]  [· G ·] …
    optimizer      updates part 0, part 1, …, each on its rank
    parameters     [w · ·]  [· w ·]      allgather         [w w w]  [w w w] …
"""

from dpkit.collectives import allgather, reduce_scatter
from dpkit.sharding.passes import Passes


class Zero1(Passes):
    """Whole parameters and gradients on each device, state in shards.

    Arguments are those of :class:`Passes`.

    Example:
        >>> from dpkit.sharding import Zero1
        >>> blocks = nn.Linear(3, 4), nn.Linear(4, 1)
        >>> adam = lambda shards: torch.optim.Adam(shards, lr=0.1)
        >>> parallel = Zero1(blocks, dpkit.devices(2, "sim"), adam)
        >>> X, y = torch.ones(5, 3), torch.zeros(5, 1)
        >>> loss = parallel.forward_backward(X, y, nn.MSELoss())
        >>> parallel.step()
        >>> parallel.blocks[0].shards[1].grad.shape
        torch.Size([8])
    """

    def step(self) -> None:
        """Take a step by the mean of the gradients of all devices."""
        for block in self.blocks:
            whole = block.take_gradients()
            parts = reduce_scatter(whole, "mean", self.algorithm)
            for shard, part in zip(block.shards, parts):
                shard.grad = part  # a view, so the whole stays
        super().step()
        for block in self.blocks:
            allgather(block.wholes, self.algorithm)
