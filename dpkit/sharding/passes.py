"""Forward and backward through the blocks of a network, on all devices.

All devices are done with a block before the next begins, so what a block
needs can be fetched before it, and given back after it::

    forward     before(0) block 0 after_forward(0)  before(1) block 1 …
    loss
    backward    before(1) block 1 after_backward(1)  before(0) block 0 …

Between two blocks autograd's graph is cut: backward of a block starts with
the gradients that the block behind it has left at its inputs.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from dpkit.arguments import (
    Devices,
    check_function,
    check_kind,
    check_rows,
    device_list,
)
from dpkit.collectives import SCATTERS
from dpkit.losses import Loss, check_mean, check_one_number
from dpkit.placement import split_batch
from dpkit.sharding.flat_block import FlatBlock
from dpkit.units import check_known

Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


class Passes:
    """Train blocks, each of which takes what the one before it returns.

    Args:
        blocks: Modules from tensor to tensor, each with parameters. They stay
            as they are: copies are trained.
        devices: k devices.
        optimizer: Makes the optimizer of a list of flat shards.
        algorithm: That of the collectives, "ring", "direct" or "library".

    Example:
        A subclass with two blocks, which it prepares in this order:

        >>> from dpkit.sharding import Passes
        >>> class Order(Passes):
        ...     def before(self, place, following):
        ...         print(f"block {place}, then {following}")
        >>> blocks = nn.Linear(3, 4), nn.Linear(4, 1)
        >>> passes = Order(blocks, dpkit.devices(2, "sim"), torch.optim.SGD)
        >>> X, y = torch.ones(5, 3), torch.zeros(5, 1)
        >>> loss = passes.forward_backward(X, y, nn.MSELoss())
        block 0, then 1
        block 1, then None
        block 1, then 0
        block 0, then None
    """

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        devices: Devices,
        optimizer: Optimizer,
        algorithm: str = "ring",
    ) -> None:
        self.devices = device_list(devices, least=1)
        check_known("algorithm", algorithm, SCATTERS)
        check_function("optimizer", optimizer)
        check_kind("blocks", blocks, Iterable)
        blocks = list(blocks)
        if not blocks:
            raise ValueError("no blocks to train (blocks: 0)")
        for place, block in enumerate(blocks):
            check_kind(f"blocks[{place}]", block, nn.Module)
        self.algorithm = algorithm
        params = [p for block in blocks for p in block.parameters()]
        if len(params) > len({id(p) for p in params}):
            raise ValueError("a parameter is in two blocks; it would be two")
        self.blocks = [FlatBlock(block, self.devices) for block in blocks]
        self._prepare()
        self.optimizer = optimizer([s for b in self.blocks for s in b.shards])

    def _prepare(self) -> None:
        """Give the shards the form in which they are kept."""

    def begin(self) -> None:
        """Prepare for a batch, also after one that an exception ended."""

    def before(self, place: int, following: int | None) -> None:
        """Prepare for a block, in forward and again in backward.

        Args:
            place: The number of the block in ``blocks``.
            following: The number of the block that runs after this one: in
                forward the next, in backward the previous one. None: this is
                the last to run.
        """

    def after_forward(self, place: int, following: int | None) -> None:
        """Clean up after a block in forward.

        Arguments are those of :meth:`before`.
        """

    def after_backward(self, place: int, following: int | None) -> None:
        """Take the gradients of a block, which are complete.

        Arguments are those of :meth:`before`.
        """

    def forward_backward(self, X: Tensor, y: Tensor, loss: Loss) -> Tensor:
        """Compute the loss of a batch, and add its gradients to what is there.

        ``X`` has the shape (b, …), with an example or more for each device;
        ``loss(outputs, y)`` is the mean over examples. Return the mean loss
        over the batch, of no dimensions, on the first device and detached.
        """
        check_rows(X)
        k = len(self.devices)
        if len(X) < k:
            raise ValueError(
                "a device would have nothing to do (examples: "
                f"{len(X)}, devices: {k})"
            )
        return self.forward_backward_parts(
            *split_batch(X, y, self.devices), loss
        )

    def forward_backward_parts(
        self, xs: Sequence[Tensor], ys: Sequence[Tensor], loss: Loss
    ) -> Tensor:
        """Do what :meth:`forward_backward` does, for a batch that is cut.

        ``xs[r]`` and ``ys[r]``, shapes (rows of r, …), lie on ``devices[r]``.
        """
        check_mean(loss)
        self._check_parts(xs, ys)
        self.begin()
        k = len(xs)
        num_rows = sum(map(len, xs))
        # The mean over ranks of these is the mean over the batch: of 5
        # examples on 2 devices, 3 count 2 · 3/5 and 2 count 2 · 2/5.
        shares = [k * len(x) / num_rows for x in xs]
        kept = self._forward(list(xs))
        inputs, outputs = kept.pop()
        losses = [
            _weighed(s, loss(o, y)) for s, o, y in zip(shares, outputs, ys)
        ]
        kept.append((inputs, losses))
        del inputs, outputs, xs  # what is left belongs to `kept`
        self._backward(kept)
        found = [x.detach().to(self.devices[0]) for x in losses]
        return torch.stack(found).mean()

    def _check_parts(self, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> None:
        """Raise ValueError unless each device has a part of the batch."""
        if not len(xs) == len(ys) == len(self.devices):
            raise ValueError(
                "each device needs a part of the batch (parts of X: "
                f"{len(xs)}, of y: {len(ys)}, devices: {len(self.devices)})"
            )

    def _forward(
        self, xs: list[Tensor]
    ) -> list[tuple[list[Tensor], list[Tensor]]]:
        """Return the inputs and the outputs of each block."""
        kept = []
        last = len(self.blocks) - 1
        for place, block in enumerate(self.blocks):
            following = place + 1 if place < last else None
            self.before(place, following)
            inputs = [x.detach().requires_grad_(place > 0) for x in xs]
            xs = [net(x) for net, x in zip(block.replicas, inputs)]
            kept.append((inputs, xs))
            self.after_forward(place, following)
        return kept

    def _backward(self, kept: list[tuple[list[Tensor], list[Tensor]]]) -> None:
        """Go back through the blocks, and forget the inputs and outputs."""
        grads: list[Tensor | None] = [None] * len(self.devices)
        while kept:
            place = len(kept) - 1
            following = place - 1 if place else None
            self.before(place, following)
            inputs, outputs = kept.pop()
            # One call: on GPUs, each device's backward has its own thread.
            torch.autograd.backward(outputs, grads)
            grads = [x.grad for x in inputs]
            del inputs, outputs
            self.after_backward(place, following)

    def step(self) -> None:
        """Take a step: each device updates its shards."""
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Forget all gradients, the whole ones and those of shards."""
        for block in self.blocks:
            block.forget_gradients()
        self.optimizer.zero_grad()


def _weighed(share: float, found: Tensor) -> Tensor:
    """Return a loss of one device times its share, once it is a number."""
    check_one_number(found)
    return share * found
